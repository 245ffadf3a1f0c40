define void @dot_rows(ptr noalias readonly %buffers, ptr noalias readonly %scalars, ptr noalias readonly %begin, ptr noalias readonly %end) #0 {
entry:
  %v50 = alloca [4 x float], align 64
  %v1 = getelementptr inbounds ptr, ptr %buffers, i64 0
  %x.data = load ptr, ptr %v1, align 8
  %v2 = getelementptr inbounds ptr, ptr %buffers, i64 1
  %y.data = load ptr, ptr %v2, align 8
  %v3 = getelementptr inbounds ptr, ptr %buffers, i64 2
  %o.data = load ptr, ptr %v3, align 8
  %v4 = getelementptr inbounds ptr, ptr %buffers, i64 3
  %big.data = load ptr, ptr %v4, align 8
  %v5 = getelementptr inbounds i8, ptr %scalars, i64 0
  %k.value = load i32, ptr %v5, align 4
  %v6 = sext i32 %k.value to i64
  %v7 = getelementptr inbounds i32, ptr %begin, i64 0
  %v8 = getelementptr inbounds i32, ptr %end, i64 0
  %v9 = load i32, ptr %v7, align 4
  %v10 = zext i32 %v9 to i64
  %v11 = load i32, ptr %v8, align 4
  %v12 = zext i32 %v11 to i64
  %v13 = getelementptr inbounds i32, ptr %begin, i64 1
  %v14 = getelementptr inbounds i32, ptr %end, i64 1
  %v15 = load i32, ptr %v13, align 4
  %v16 = zext i32 %v15 to i64
  %v17 = load i32, ptr %v14, align 4
  %v18 = zext i32 %v17 to i64
  %v19 = getelementptr inbounds i32, ptr %begin, i64 2
  %v20 = getelementptr inbounds i32, ptr %end, i64 2
  %v21 = load i32, ptr %v19, align 4
  %v22 = zext i32 %v21 to i64
  %v23 = load i32, ptr %v20, align 4
  %v24 = zext i32 %v23 to i64
  br label %head25
head25:
  %v26 = phi i64 [ %v22, %entry ], [ %v27, %done29 ]
  %v28 = icmp slt i64 %v26, %v24
  br i1 %v28, label %body25, label %done25
body25:
  br label %head29
head29:
  %v30 = phi i64 [ %v16, %body25 ], [ %v31, %done33 ]
  %v32 = icmp slt i64 %v30, %v18
  br i1 %v32, label %body29, label %done29
body29:
  br label %head33
head33:
  %v34 = phi i64 [ %v10, %body29 ], [ %v35, %join68 ]
  %v36 = icmp slt i64 %v34, %v12
  br i1 %v36, label %body33, label %done33
body33:
  br label %head37
head37:
  %v38 = phi i64 [ 0, %body33 ], [ %v39, %body37 ]
  %v40 = phi <4 x float> [ splat (float 0x0000000000000000), %body33 ], [ %v49, %body37 ]
  %v41 = icmp slt i64 %v38, %v6
  br i1 %v41, label %body37, label %done37
body37:
  %v42 = mul nsw i64 %v34, %v6
  %v43 = add nsw i64 %v42, %v38
  %v44 = getelementptr inbounds float, ptr %x.data, i64 %v43
  %v45 = load <4 x float>, ptr %v44, align 4, !alias.scope !5, !noalias !6
  %v46 = getelementptr inbounds float, ptr %y.data, i64 %v43
  %v47 = load <4 x float>, ptr %v46, align 4, !alias.scope !7, !noalias !8
  %v48 = fmul <4 x float> %v45, %v47
  %v49 = fadd <4 x float> %v40, %v48
  %v39 = add nsw i64 %v38, 4
  br label %head37
done37:
  %v51 = extractelement <4 x float> %v40, i32 0
  %v52 = getelementptr inbounds float, ptr %v50, i64 0
  store float %v51, ptr %v52, align 4
  %v53 = extractelement <4 x float> %v40, i32 1
  %v54 = getelementptr inbounds float, ptr %v50, i64 1
  store float %v53, ptr %v54, align 4
  %v55 = extractelement <4 x float> %v40, i32 2
  %v56 = getelementptr inbounds float, ptr %v50, i64 2
  store float %v55, ptr %v56, align 4
  %v57 = extractelement <4 x float> %v40, i32 3
  %v58 = getelementptr inbounds float, ptr %v50, i64 3
  store float %v57, ptr %v58, align 4
  br label %head59
head59:
  %v60 = phi i64 [ 0, %done37 ], [ %v61, %body59 ]
  %v62 = phi float [ 0x3FB99999A0000000, %done37 ], [ %v66, %body59 ]
  %v63 = icmp slt i64 %v60, 4
  br i1 %v63, label %body59, label %done59
body59:
  %v64 = getelementptr inbounds float, ptr %v50, i64 %v60
  %v65 = load float, ptr %v64, align 4
  %v66 = fadd float %v62, %v65
  %v61 = add nsw i64 %v60, 1
  br label %head59, !llvm.loop !14
done59:
  %v67 = fcmp olt float 0x7FF0000000000000, %v62
  br i1 %v67, label %then68, label %else68
then68:
  br label %join68
else68:
  br label %join68
join68:
  %v69 = phi float [ 0x7FF8000000000000, %then68 ], [ %v62, %else68 ]
  %v70 = getelementptr inbounds float, ptr %o.data, i64 %v34
  store float %v69, ptr %v70, align 4, !alias.scope !9, !noalias !10
  %v71 = zext i1 %v67 to i8
  %v72 = getelementptr inbounds i8, ptr %big.data, i64 %v34
  store i8 %v71, ptr %v72, align 1, !alias.scope !11, !noalias !12
  %v35 = add nsw i64 %v34, 1
  br label %head33
done33:
  %v31 = add nsw i64 %v30, 1
  br label %head29
done29:
  %v27 = add nsw i64 %v26, 1
  br label %head25
done25:
  ret void
}

attributes #0 = { nounwind "prefer-vector-width"="256" }

!0 = distinct !{!0}
!1 = distinct !{!1, !0}
!2 = distinct !{!2, !0}
!3 = distinct !{!3, !0}
!4 = distinct !{!4, !0}
!5 = !{!1}
!6 = !{!2, !3, !4}
!7 = !{!2}
!8 = !{!1, !3, !4}
!9 = !{!3}
!10 = !{!1, !2, !4}
!11 = !{!4}
!12 = !{!1, !2, !3}
!13 = !{!"llvm.loop.unroll.full"}
!14 = distinct !{!14, !13}
