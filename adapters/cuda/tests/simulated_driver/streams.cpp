// Streams, each with a thread that works through its queue, and events.
#include "simulation.h"

namespace {
struct Event {
    std::mutex guard;
    std::condition_variable change;
    bool recorded = false, done = true;
    Clock::time_point at;
};
using EventPtr = std::shared_ptr<Event>;
EventPtr &event_of(CUevent e) { return *reinterpret_cast<EventPtr *>(e); }

bool complete(Event &e) {
    std::lock_guard<std::mutex> hold(e.guard);
    return e.done;
}
}  // namespace

Stream::Stream(Context *owner) : context(owner), worker([this] { serve(); }) {}
void Stream::push(Work work) {
    std::lock_guard<std::mutex> hold(guard);
    queue.push_back(std::move(work));
    change.notify_all();
}
bool Stream::idle() {
    std::lock_guard<std::mutex> hold(guard);
    return queue.empty() && !busy;
}
void Stream::drain() {
    std::unique_lock<std::mutex> hold(guard);
    change.wait(hold, [this] { return queue.empty() && !busy; });
}
void Stream::end() {
    {
        std::lock_guard<std::mutex> hold(guard);
        stop = true;
        change.notify_all();
    }
    worker.join();
}
void Stream::serve() {
    for (;;) {
        Work work;
        {
            std::unique_lock<std::mutex> hold(guard);
            change.wait(hold, [this] { return stop || !queue.empty(); });
            if (queue.empty()) return;
            work = std::move(queue.front());
            queue.pop_front();
            busy = true;
        }
        if (!context->error)
            if (CUresult code = work()) context->error = code;
        work = nullptr;
        std::lock_guard<std::mutex> hold(guard);
        busy = false;
        change.notify_all();
    }
}
Stream *stream_of(CUstream handle) {
    Context *c = current();
    if (!c) throw Failed{CUDA_ERROR_INVALID_CONTEXT};
    if (c->error) throw Failed{CUresult(c->error.load())};
    std::lock_guard<std::mutex> hold(c->guard);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        if (!c->legacy) c->streams.insert(c->legacy = new Stream(c));
        return c->legacy;
    }
    auto *found = reinterpret_cast<Stream *>(handle);
    if (!c->streams.count(found)) throw Failed{CUDA_ERROR_INVALID_HANDLE};
    return found;
}
CUresult submit(CUstream handle, int kind, const void *what, Work work) {
    Stream *s = stream_of(handle);
    if (s->capture) s->capture->nodes.push_back({kind, what, std::move(work)});
    else s->push(std::move(work));
    return CUDA_SUCCESS;
}
CUresult finish(CUstream handle) {
    Stream *s = stream_of(handle);
    if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    s->drain();
    return CUresult(s->context->error.load());
}

extern "C" {

CUresult cuStreamCreate(CUstream *stream, unsigned) {
    if (CUresult code = need_context()) return code;
    auto *made = new Stream(current());
    std::lock_guard<std::mutex> hold(current()->guard);
    current()->streams.insert(made);
    *stream = reinterpret_cast<CUstream>(made);
    return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    auto *s = reinterpret_cast<Stream *>(stream);
    {
        std::lock_guard<std::mutex> hold(current()->guard);
        if (!current()->streams.erase(s)) return CUDA_ERROR_INVALID_HANDLE;
    }
    std::thread([s] {  // destroying is asynchronous: what is in flight is finished
        s->end();
        delete s;
    }).detach();
    return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
    return guarded([&] {
        Stream *s = stream_of(stream);
        if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        const bool idle = s->idle() || fault("stream_done_early");
        if (s->context->error) return CUresult(s->context->error.load());
        return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}
CUresult cuStreamSynchronize(CUstream stream) {
    return guarded([&] { return finish(stream); });
}
CUresult cuEventCreate(CUevent *event, unsigned) {
    if (CUresult code = need_context()) return code;
    *event = reinterpret_cast<CUevent>(new EventPtr(std::make_shared<Event>()));
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
    if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
    delete reinterpret_cast<EventPtr *>(event);
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent handle, CUstream stream) {
    return guarded([&] {
        EventPtr fresh = std::make_shared<Event>();
        fresh->recorded = true, fresh->done = false;
        event_of(handle) = fresh;
        Stream *s = stream_of(stream);
        if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;  // the adapter has no use for it
        auto complete = [fresh] {
            std::lock_guard<std::mutex> hold(fresh->guard);
            fresh->at = Clock::now(), fresh->done = true;
            fresh->change.notify_all();
            return CUDA_SUCCESS;
        };
        if (fault("event_early")) return complete();
        if (fault("event_never")) return CUDA_SUCCESS;
        s->push(complete);
        return CUDA_SUCCESS;
    });
}
CUresult cuEventQuery(CUevent handle) {
    return guarded([&] {
        if (CUresult code = need_context()) return code;
        return complete(*event_of(handle)) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    });
}
CUresult cuEventSynchronize(CUevent handle) {
    EventPtr e = event_of(handle);
    for (;;) {
        if (CUresult code = need_context()) return code;
        std::unique_lock<std::mutex> hold(e->guard);
        if (e->change.wait_for(hold, std::chrono::milliseconds(5), [&] { return e->done; })) return CUDA_SUCCESS;
    }
}
CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    EventPtr a = event_of(start), b = event_of(end);
    if (!a->recorded || !b->recorded) return CUDA_ERROR_INVALID_HANDLE;
    if (!complete(*a) || !complete(*b)) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(b->at - a->at).count();
    if (fault("elapsed_seconds")) *milliseconds *= 1e-3f;
    if (fault("elapsed_negative")) *milliseconds = -*milliseconds;
    return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent handle, unsigned) {
    return guarded([&] {
        EventPtr e = event_of(handle);
        Stream *s = stream_of(stream);
        Context *c = s->context;
        if (fault("wait_nothing")) return CUDA_SUCCESS;
        s->push([e, c] {
            std::unique_lock<std::mutex> hold(e->guard);
            while (!e->change.wait_for(hold, std::chrono::milliseconds(5), [&] { return e->done; }))
                if (c->error) return CUresult(c->error.load());
            return CUDA_SUCCESS;
        });
        return CUDA_SUCCESS;
    });
}
}
