define void @half_add(ptr noalias readonly %buffers, ptr noalias readonly %scalars, ptr noalias readonly %begin, ptr noalias readonly %end) #0 {
entry:
  %v1 = getelementptr inbounds ptr, ptr %buffers, i64 0
  %x.data = load ptr, ptr %v1, align 8
  %v2 = getelementptr inbounds ptr, ptr %buffers, i64 1
  %y.data = load ptr, ptr %v2, align 8
  %v3 = getelementptr inbounds ptr, ptr %buffers, i64 2
  %o.data = load ptr, ptr %v3, align 8
  %v4 = getelementptr inbounds i32, ptr %begin, i64 0
  %v5 = getelementptr inbounds i32, ptr %end, i64 0
  %v6 = load i32, ptr %v4, align 4
  %v7 = zext i32 %v6 to i64
  %v8 = load i32, ptr %v5, align 4
  %v9 = zext i32 %v8 to i64
  %v10 = getelementptr inbounds i32, ptr %begin, i64 1
  %v11 = getelementptr inbounds i32, ptr %end, i64 1
  %v12 = load i32, ptr %v10, align 4
  %v13 = zext i32 %v12 to i64
  %v14 = load i32, ptr %v11, align 4
  %v15 = zext i32 %v14 to i64
  %v16 = getelementptr inbounds i32, ptr %begin, i64 2
  %v17 = getelementptr inbounds i32, ptr %end, i64 2
  %v18 = load i32, ptr %v16, align 4
  %v19 = zext i32 %v18 to i64
  %v20 = load i32, ptr %v17, align 4
  %v21 = zext i32 %v20 to i64
  br label %head22
head22:
  %v23 = phi i64 [ %v19, %entry ], [ %v24, %done26 ]
  %v25 = icmp slt i64 %v23, %v21
  br i1 %v25, label %body22, label %done22
body22:
  br label %head26
head26:
  %v27 = phi i64 [ %v13, %body22 ], [ %v28, %done30 ]
  %v29 = icmp slt i64 %v27, %v15
  br i1 %v29, label %body26, label %done26
body26:
  br label %head30
head30:
  %v31 = phi i64 [ %v7, %body26 ], [ %v32, %body30 ]
  %v33 = icmp slt i64 %v31, %v9
  br i1 %v33, label %body30, label %done30
body30:
  %v34 = getelementptr inbounds i16, ptr %x.data, i64 %v31
  %v35 = load i16, ptr %v34, align 2, !alias.scope !4, !noalias !5
  %v36 = zext i16 %v35 to i32
  %v37 = and i32 %v36, 32768
  %v38 = shl i32 %v37, 16
  %v39 = and i32 %v36, 32767
  %v40 = shl i32 %v39, 13
  %v41 = add i32 %v40, 939524096
  %v42 = icmp ule i32 260046848, %v40
  %v43 = add i32 %v41, 939524096
  %v44 = select i1 %v42, i32 %v43, i32 %v41
  %v45 = lshr i32 %v40, 13
  %v46 = uitofp i32 %v45 to float
  %v47 = fmul float %v46, 0x3E70000000000000
  %v48 = bitcast float %v47 to i32
  %v49 = icmp ult i32 %v40, 8388608
  %v50 = select i1 %v49, i32 %v48, i32 %v44
  %v51 = or i32 %v38, %v50
  %v52 = bitcast i32 %v51 to float
  %v53 = getelementptr inbounds i16, ptr %y.data, i64 %v31
  %v54 = load i16, ptr %v53, align 2, !alias.scope !6, !noalias !7
  %v55 = zext i16 %v54 to i32
  %v56 = and i32 %v55, 32768
  %v57 = shl i32 %v56, 16
  %v58 = and i32 %v55, 32767
  %v59 = shl i32 %v58, 13
  %v60 = add i32 %v59, 939524096
  %v61 = icmp ule i32 260046848, %v59
  %v62 = add i32 %v60, 939524096
  %v63 = select i1 %v61, i32 %v62, i32 %v60
  %v64 = lshr i32 %v59, 13
  %v65 = uitofp i32 %v64 to float
  %v66 = fmul float %v65, 0x3E70000000000000
  %v67 = bitcast float %v66 to i32
  %v68 = icmp ult i32 %v59, 8388608
  %v69 = select i1 %v68, i32 %v67, i32 %v63
  %v70 = or i32 %v57, %v69
  %v71 = bitcast i32 %v70 to float
  %v72 = fadd float %v52, %v71
  %v73 = bitcast float %v72 to i32
  %v74 = and i32 %v73, 2147483647
  %v75 = icmp ult i32 2139095040, %v74
  %v76 = lshr i32 %v73, 16
  %v77 = and i32 %v76, 32768
  %v78 = icmp ult i32 %v74, 947912704
  %v79 = lshr i32 %v74, 23
  %v80 = sub i32 126, %v79
  %v81 = call i32 @llvm.umin.i32(i32 %v80, i32 25)
  %v82 = and i32 %v74, 8388607
  %v83 = or i32 %v82, 8388608
  %v84 = shl i32 1, %v81
  %v85 = lshr i32 %v84, 1
  %v86 = lshr i32 %v83, %v81
  %v87 = and i32 %v86, 1
  %v88 = sub i32 %v85, 1
  %v89 = add i32 %v88, %v87
  %v90 = add i32 %v83, %v89
  %v91 = lshr i32 %v90, %v81
  %v92 = lshr i32 %v74, 13
  %v93 = and i32 %v92, 1
  %v94 = add i32 %v93, 3355447295
  %v95 = add i32 %v74, %v94
  %v96 = lshr i32 %v95, 13
  %v97 = select i1 %v78, i32 %v91, i32 %v96
  %v98 = icmp ule i32 1199570944, %v74
  %v99 = select i1 %v75, i32 32256, i32 31744
  %v100 = select i1 %v98, i32 %v99, i32 %v97
  %v101 = or i32 %v77, %v100
  %v102 = trunc i32 %v101 to i16
  %v103 = getelementptr inbounds i16, ptr %o.data, i64 %v31
  store i16 %v102, ptr %v103, align 2, !alias.scope !8, !noalias !9
  %v32 = add nsw i64 %v31, 1
  br label %head30
done30:
  %v28 = add nsw i64 %v27, 1
  br label %head26
done26:
  %v24 = add nsw i64 %v23, 1
  br label %head22
done22:
  ret void
}

declare i32 @llvm.umin.i32(i32, i32)

attributes #0 = { nounwind "prefer-vector-width"="256" }

!0 = distinct !{!0}
!1 = distinct !{!1, !0}
!2 = distinct !{!2, !0}
!3 = distinct !{!3, !0}
!4 = !{!1}
!5 = !{!2, !3}
!6 = !{!2}
!7 = !{!1, !3}
!8 = !{!3}
!9 = !{!1, !2}
