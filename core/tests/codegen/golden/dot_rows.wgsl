var<private> infinity_bits: u32 = 0x7f800000u;
var<private> nan_bits: u32 = 0x7fc00000u;
var<private> opaque_zero: u32;
fn exact(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ opaque_zero); }
fn exact2(x: vec2<f32>) -> vec2<f32> { return bitcast<vec2<f32>>(bitcast<vec2<u32>>(x) ^ vec2<u32>(opaque_zero)); }
fn exact3(x: vec3<f32>) -> vec3<f32> { return bitcast<vec3<f32>>(bitcast<vec3<u32>>(x) ^ vec3<u32>(opaque_zero)); }
fn exact4(x: vec4<f32>) -> vec4<f32> { return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(opaque_zero)); }

@group(0) @binding(0) var<storage, read> dot_rows_x: array<f32>;
@group(0) @binding(1) var<storage, read> dot_rows_y: array<f32>;
@group(0) @binding(2) var<storage, read_write> dot_rows_o: array<f32>;
@group(0) @binding(3) var<storage, read_write> dot_rows_big: array<u32>;
struct dot_rows_Block { k: i32 }
@group(0) @binding(4) var<uniform> dot_rows_block: dot_rows_Block;
@compute @workgroup_size(1, 1, 1)
fn dot_rows(@builtin(workgroup_id) block_id: vec3<u32>, @builtin(local_invocation_id) thread_id: vec3<u32>, @builtin(num_workgroups) block_count: vec3<u32>) {
    opaque_zero = u32(block_id.x >= block_count.x);
    let v1: i32 = i32(block_id.x);
    var r2: vec4<f32> = vec4<f32>(0.0f, 0.0f, 0.0f, 0.0f);
    for (var n3: i32 = 0i; n3 < dot_rows_block.k; n3 = select(dot_rows_block.k, n3 + 4i, u32(dot_rows_block.k) - u32(n3) > u32(4i))) {
        let v4: i32 = (v1 * dot_rows_block.k) + n3;
        let v5: vec4<f32> = vec4<f32>(dot_rows_x[v4 + 0], dot_rows_x[v4 + 1], dot_rows_x[v4 + 2], dot_rows_x[v4 + 3]);
        let v6: vec4<f32> = vec4<f32>(dot_rows_y[v4 + 0], dot_rows_y[v4 + 1], dot_rows_y[v4 + 2], dot_rows_y[v4 + 3]);
        let v7: vec4<f32> = exact4(v5 * v6);
        let v8: vec4<f32> = exact4(r2 + v7);
        r2 = v8;
    }
    var dot_rows_m9: array<f32, 4>;
    dot_rows_m9[0i] = r2.x;
    dot_rows_m9[1i] = r2.y;
    dot_rows_m9[2i] = r2.z;
    dot_rows_m9[3i] = r2.w;
    var r10: f32 = 0x1.99999ap-4f;
    for (var n11: i32 = 0i; n11 < 4i; n11++) {
        let v12: f32 = dot_rows_m9[n11];
        r10 = exact(r10 + v12);
    }
    let v13: bool = bitcast<f32>(infinity_bits) < r10;
    var r14: f32;
    if (v13) {
        r14 = bitcast<f32>(nan_bits);
    } else {
        r14 = r10;
    }
    dot_rows_o[v1] = r14;
    dot_rows_big[v1] = u32(v13);
}
