// What a module and the simulated driver share: where a thread is, and how it meets the others of its block.
#pragma once
struct SimIndex { unsigned x, y, z; };
struct SimState {
    SimIndex thread, block, block_dim, grid_dim;
    unsigned warp_size;
    void (*barrier)();                                    // __syncthreads
    void (*meet)(unsigned mask);                          // the lanes of a warp: __syncwarp, and around an exchange
    char *(*slot)(unsigned thread);                       // 16 bytes for each thread of the block, to exchange values
};
