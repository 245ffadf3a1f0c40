// Stream capture and graphs, of which the adapter uses those without branches: nodes in the order of their capture.
#include <algorithm>
#include "simulation.h"

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
    return guarded([&] {
        Stream *s = stream_of(stream);
        if (s->capture || s == s->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        s->capture = new Graph;
        return CUDA_SUCCESS;
    });
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    return guarded([&] {
        Stream *s = stream_of(stream);
        if (!s->capture) return CUDA_ERROR_ILLEGAL_STATE;
        if (s->capture->nodes.size() > 1 && fault("graph_last_step")) s->capture->nodes.pop_back();
        *graph = reinterpret_cast<CUgraph>(s->capture);
        s->capture = nullptr;
        return CUDA_SUCCESS;
    });
}
CUresult cuGraphDestroy(CUgraph graph) {
    delete reinterpret_cast<Graph *>(graph);
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long) {
    *made = reinterpret_cast<CUgraphExec>(new std::shared_ptr<Graph>(new Graph(*reinterpret_cast<Graph *>(graph))));
    return CUDA_SUCCESS;
}
CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo *) {
    auto &old = *reinterpret_cast<std::shared_ptr<Graph> *>(executable);
    const auto &fresh = reinterpret_cast<Graph *>(graph)->nodes;
    auto same = [](const Node &a, const Node &b) { return a.kind == b.kind && a.what == b.what; };
    if (!std::equal(old->nodes.begin(), old->nodes.end(), fresh.begin(), fresh.end(), same))
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (!fault("graph_update_nothing")) old = std::make_shared<Graph>(Graph{fresh});
    return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    return guarded([&] {
        auto graph = *reinterpret_cast<std::shared_ptr<Graph> *>(executable);
        if (fault("graph_other_stream")) stream = nullptr;
        return submit(stream, 6, graph.get(), [graph] {
            for (const Node &node : graph->nodes)
                if (CUresult code = node.work()) return code;
            return CUDA_SUCCESS;
        });
    });
}
CUresult cuGraphExecDestroy(CUgraphExec executable) {
    delete reinterpret_cast<std::shared_ptr<Graph> *>(executable);
    return CUDA_SUCCESS;
}
}
