var<private> infinity_bits: u32 = 0x7f800000u;
var<private> nan_bits: u32 = 0x7fc00000u;
var<private> opaque_zero: u32;
fn exact(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ opaque_zero); }
fn exact2(x: vec2<f32>) -> vec2<f32> { return bitcast<vec2<f32>>(bitcast<vec2<u32>>(x) ^ vec2<u32>(opaque_zero)); }
fn exact3(x: vec3<f32>) -> vec3<f32> { return bitcast<vec3<f32>>(bitcast<vec3<u32>>(x) ^ vec3<u32>(opaque_zero)); }
fn exact4(x: vec4<f32>) -> vec4<f32> { return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(opaque_zero)); }

@group(0) @binding(0) var<storage, read> half_add_x: array<f32>;
@group(0) @binding(1) var<storage, read> half_add_y: array<f32>;
@group(0) @binding(2) var<storage, read_write> half_add_o: array<f32>;
@compute @workgroup_size(1, 1, 1)
fn half_add(@builtin(workgroup_id) block_id: vec3<u32>, @builtin(local_invocation_id) thread_id: vec3<u32>, @builtin(num_workgroups) block_count: vec3<u32>) {
    opaque_zero = u32(block_id.x >= block_count.x);
    let v1: i32 = i32(block_id.x);
    let v2: f32 = half_add_x[v1];
    let v3: f32 = half_add_y[v1];
    let v4: u32 = bitcast<u32>(v2 + v3);
    let v5: u32 = v4 & 2147483647u;
    let v6: u32 = 126u - (v5 >> u32(23u));
    let v7: u32 = min(v6, 25u);
    let v8: u32 = (v5 & 8388607u) | 8388608u;
    let v9: u32 = v8 + ((((1u << u32(v7)) >> u32(1u)) - 1u) + ((v8 >> u32(v7)) & 1u));
    let v10: u32 = select((v5 + (((v5 >> u32(13u)) & 1u) + 3355447295u)) >> u32(13u), v9 >> u32(v7), v5 < 947912704u);
    let v11: u32 = select(v10, select(31744u, 32256u, 2139095040u < v5), 1199570944u <= v5);
    let v12: u32 = ((v4 >> u32(16u)) & 32768u) | v11;
    let v13: u32 = (v12 & 32767u) << u32(13u);
    let v14: u32 = v13 + 939524096u;
    let v15: u32 = select(select(v14, v14 + 939524096u, 260046848u <= v13), bitcast<u32>(f32(v13 >> u32(13u)) * 0x1.0p-24f), v13 < 8388608u);
    half_add_o[v1] = bitcast<f32>(((v12 & 32768u) << u32(16u)) | v15);
}
