define void @axpy(ptr noalias readonly %buffers, ptr noalias readonly %scalars, ptr noalias readonly %begin, ptr noalias readonly %end) #0 {
entry:
  %v1 = getelementptr inbounds ptr, ptr %buffers, i64 0
  %x.data = load ptr, ptr %v1, align 8
  %v2 = getelementptr inbounds ptr, ptr %buffers, i64 1
  %y.data = load ptr, ptr %v2, align 8
  %v3 = getelementptr inbounds i8, ptr %scalars, i64 0
  %offset_x.value = load i32, ptr %v3, align 4
  %v4 = sext i32 %offset_x.value to i64
  %v5 = getelementptr inbounds i8, ptr %scalars, i64 4
  %n.value = load i32, ptr %v5, align 4
  %v6 = sext i32 %n.value to i64
  %v7 = getelementptr inbounds i8, ptr %scalars, i64 8
  %a.value = load float, ptr %v7, align 4
  %v8 = getelementptr inbounds i32, ptr %begin, i64 0
  %v9 = getelementptr inbounds i32, ptr %end, i64 0
  %v10 = load i32, ptr %v8, align 4
  %v11 = zext i32 %v10 to i64
  %v12 = load i32, ptr %v9, align 4
  %v13 = zext i32 %v12 to i64
  %v14 = getelementptr inbounds i32, ptr %begin, i64 1
  %v15 = getelementptr inbounds i32, ptr %end, i64 1
  %v16 = load i32, ptr %v14, align 4
  %v17 = zext i32 %v16 to i64
  %v18 = load i32, ptr %v15, align 4
  %v19 = zext i32 %v18 to i64
  %v20 = getelementptr inbounds i32, ptr %begin, i64 2
  %v21 = getelementptr inbounds i32, ptr %end, i64 2
  %v22 = load i32, ptr %v20, align 4
  %v23 = zext i32 %v22 to i64
  %v24 = load i32, ptr %v21, align 4
  %v25 = zext i32 %v24 to i64
  br label %head26
head26:
  %v27 = phi i64 [ %v23, %entry ], [ %v28, %done30 ]
  %v29 = icmp slt i64 %v27, %v25
  br i1 %v29, label %body26, label %done26
body26:
  br label %head30
head30:
  %v31 = phi i64 [ %v17, %body26 ], [ %v32, %done34 ]
  %v33 = icmp slt i64 %v31, %v19
  br i1 %v33, label %body30, label %done30
body30:
  br label %head34
head34:
  %v35 = phi i64 [ %v11, %body30 ], [ %v36, %done43 ]
  %v37 = icmp slt i64 %v35, %v13
  br i1 %v37, label %body34, label %done34
body34:
  %v38 = mul nsw i64 %v35, 256
  %v39 = trunc nsw i64 %v38 to i32
  %v40 = add i32 %v39, 256
  %v41 = call i32 @llvm.smin.i32(i32 %v40, i32 %n.value)
  %v42 = sext i32 %v41 to i64
  br label %head43
head43:
  %v44 = phi i64 [ %v38, %body34 ], [ %v45, %body43 ]
  %v46 = icmp slt i64 %v44, %v42
  br i1 %v46, label %body43, label %done43
body43:
  %v47 = add nsw i64 %v44, %v4
  %v48 = getelementptr inbounds float, ptr %x.data, i64 %v47
  %v49 = load float, ptr %v48, align 4, !alias.scope !3, !noalias !4
  %v50 = getelementptr inbounds float, ptr %y.data, i64 %v44
  %v51 = load float, ptr %v50, align 4, !alias.scope !5, !noalias !6
  %v52 = call float @llvm.fma.f32(float %a.value, float %v49, float %v51)
  %v53 = getelementptr inbounds float, ptr %y.data, i64 %v44
  store float %v52, ptr %v53, align 4, !alias.scope !5, !noalias !6
  %v45 = add nsw i64 %v44, 1
  br label %head43
done43:
  %v36 = add nsw i64 %v35, 1
  br label %head34
done34:
  %v32 = add nsw i64 %v31, 1
  br label %head30
done30:
  %v28 = add nsw i64 %v27, 1
  br label %head26
done26:
  ret void
}

declare float @llvm.fma.f32(float, float, float)
declare i32 @llvm.smin.i32(i32, i32)

attributes #0 = { nounwind "prefer-vector-width"="256" }

!0 = distinct !{!0}
!1 = distinct !{!1, !0}
!2 = distinct !{!2, !0}
!3 = !{!1}
!4 = !{!2}
!5 = !{!2}
!6 = !{!1}
