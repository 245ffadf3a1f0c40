// The usual run of a plan, and the usual wait for a device, for oarlock.runtime: one stretch of launches that a driver
// keeps, memory from the pool, the default stream. It does what Plan.run and Device.synchronize do, call for call, or
// declines before it has changed anything. The interpreter lock is held throughout, but for what the driver lets go of.
#pragma once

#include <vector>

#include "slots.hpp"

namespace oarlock::calls {

struct Running {
    Class allocation, array, buffer, config, dropped, gate, lane, loaded, parts, pool, profile, recipe;
    Slot capacity, handle, inherited, label, used_by, nbytes, others, owner, used_at, whole;  // of an Allocation
    Slot array_buffer, array_device, array_dtype, array_offset, array_shape;
    Slot buffer_allocation, buffer_device, buffer_freed, buffer_label, buffer_nbytes;
    Slot poison, pooled, items, waiting, orphan, depth, refusal, started, what;
    Slot closed, completed, deferred, failure, lane_handle, ticket;
    Slot plan_handle, plan_programs, uses;
    Slot budget, classes, idle, in_use, live, peak, released, sizes;
    Slot active;
    PyObject *settings, *switch_, *scope, *now, *slice, *timeout, *explained;
    destructor drop;  // Buffer.__del__, as Python calls it
    long long runs = 0, waits = 0;
};
inline Running R;

inline void drop_buffer(PyObject *buffer);

// Given once by runtime.fast: the classes, and the objects of the process that are looked at.
inline PyObject *know_running(PyObject *, PyObject *given) {
    const bool learnt =
        R.allocation.learn(given, "Allocation",
                           {{&R.capacity, "capacity"}, {&R.handle, "handle"}, {&R.inherited, "inherited"},
                            {&R.label, "label"}, {&R.used_by, "lane"}, {&R.nbytes, "nbytes"}, {&R.others, "others"},
                            {&R.owner, "owner"}, {&R.used_at, "ticket"}, {&R.whole, "whole"}}) &&
        R.array.learn(given, "DeviceArray",
                      {{&R.array_buffer, "buffer"}, {&R.array_device, "device"}, {&R.array_dtype, "dtype"},
                       {&R.array_offset, "offset_bytes"}, {&R.array_shape, "shape"}}) &&
        R.buffer.learn(given, "Buffer",
                       {{&R.buffer_allocation, "_allocation"}, {&R.buffer_device, "device"},
                        {&R.buffer_freed, "freed"}, {&R.buffer_label, "label"}, {&R.buffer_nbytes, "nbytes"}}) &&
        R.config.learn(given, "Config", {{&R.poison, "poison"}, {&R.pooled, "pool"}}) &&
        R.dropped.learn(given, "Dropped", {{&R.items, "items"}, {&R.orphan, "orphan"}, {&R.waiting, "_waiting"}}) &&
        R.gate.learn(given, "Gate", {{&R.depth, "_depth"}, {&R.refusal, "refusal"}, {&R.started, "_started"},
                                     {&R.what, "_what"}}) &&
        R.lane.learn(given, "Lane", {{&R.closed, "closed"}, {&R.completed, "completed"}, {&R.deferred, "deferred"},
                                     {&R.failure, "failure"}, {&R.lane_handle, "handle"}, {&R.ticket, "ticket"}}) &&
        R.pool.learn(given, "MemoryPool", {{&R.budget, "budget"}, {&R.classes, "_classes"}, {&R.idle, "idle"},
                                           {&R.in_use, "in_use"}, {&R.live, "live"}, {&R.peak, "peak"},
                                           {&R.released, "_released"}, {&R.sizes, "_sizes"}}) &&
        R.loaded.learn(given, "PreparedPlan",
                       {{&R.plan_handle, "handle"}, {&R.plan_programs, "programs"}, {&R.uses, "uses"}}) &&
        R.profile.learn(given, "Switch", {{&R.active, "profile"}}) && R.parts.learn(given, "Parts", {}) &&
        R.recipe.learn(given, "Recipe", {}) && lock_type.learn(given, "RLock");
    if (!learnt || !learn(given, {{&R.settings, "config"}, {&R.explained, "explained"}, {&R.now, "now"},
                                  {&R.scope, "scope"}, {&R.slice, "slice"}, {&R.switch_, "switch"},
                                  {&R.timeout, "timeout"}}))
        return nullptr;
    if (R.buffer.type->tp_finalize != &drop_buffer) R.drop = std::exchange(R.buffer.type->tp_finalize, &drop_buffer);
    Py_RETURN_NONE;
}

namespace words {
inline PyObject *const append = word("append"), *const appendleft = word("appendleft"),
                *const change = word("change"), *const check = word("check"),
                *const collect_held = word("collect_held"), *const end_life = word("end_life"),
                *const keep = word("_keep"), *const patches = word("patches"), *const popleft = word("popleft"),
                *const dropped = word("dropped"), *const release = word("release"), *const replay = word("replay"),
                *const synchronize = word("synchronize"), *const take = word("take"), *const use = word("use"),
                *const allocation = word("allocation"), *const allocating = word("allocate"),
                *const freeing = word("free"), *const parts = word("parts"), *const pool = word("pool");
}

// Buffer.__del__
inline void drop_buffer(PyObject *buffer) {
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    const Own memory(shared(R.buffer_allocation.of(buffer)));
    if (memory && memory.get() != Py_None) {
        const Own dropped(PyObject_GetAttr(R.buffer_device.of(buffer), words::dropped));
        if (R.dropped.has(dropped.get())) {
            R.buffer_allocation.share(buffer, Py_None);
            if (!held(call(R.items.of(dropped.get()), words::append, memory.get()))) PyErr_WriteUnraisable(buffer);
        } else {
            PyErr_Clear();
            R.drop(buffer);
        }
    }
    PyErr_Restore(kind, value, trace);
}

// What of a device is needed: the tuple runtime.fast.Parts.
struct Parts {
    explicit Parts(PyObject *tuple)
        : device(at(tuple, 0)), gate(at(tuple, 1)), lock(at(tuple, 2)), pool(at(tuple, 3)), dropped(at(tuple, 4)),
          lane(at(tuple, 5)), lanes(at(tuple, 6)), driver(at(tuple, 7)), most_idle(at(tuple, 8)) {}
    static PyObject *at(PyObject *tuple, Py_ssize_t i) { return PyTuple_GET_ITEM(tuple, i); }
    PyObject *device, *gate, *lock, *pool, *dropped, *lane, *lanes, *driver, *most_idle;
};

// Holds the driver, as Gate.enter and Gate.leave do. Not entered: it is refused, or another thread has it.
class Holding {
  public:
    Holding(const Parts &parts, PyObject *what) : parts_(parts) {
        if (R.refusal.of(parts.gate) != Py_None) return;
        entered = lock_type.take(parts.lock);
        if (!entered) return;
        R.depth.add(parts.gate, 1);
        doing(what);
        R.started.set(parts.gate, PyObject_CallNoArgs(R.now));
    }
    Holding(const Holding &) = delete;
    ~Holding() { leave(); }

    void doing(PyObject *what) {
        what_ = what;
        R.what.share(parts_.gate, what);
    }

    void leave() {
        if (!entered) return;
        entered = false;
        R.depth.add(parts_.gate, -1);
        if (R.depth.number(parts_.gate) == 0) R.started.set(parts_.gate, PyFloat_FromDouble(0.0));
        lock_type.give(parts_.lock);
    }

    // Explains the error that is set, while the driver is held; null.
    PyObject *fail() const {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
        const Own error = taken_error();
        PyObject *given[] = {parts_.gate, what_, error.get()};
        return PyObject_Vectorcall(R.explained, given, 3, nullptr);  // which raises
    }

    bool entered = false;

  private:
    const Parts &parts_;
    PyObject *what_ = nullptr;
};

// Whether nothing is on that these calls know nothing of: `with stream:`, a profile, poison, a budget, no pool.
inline bool usual(const Parts &parts) {
    PyObject *scope = nullptr;
    if (PyContextVar_Get(R.scope, nullptr, &scope) < 0) PyErr_Clear();
    const Own given(scope);
    return (scope == nullptr || scope == Py_None) && R.active.of(R.switch_) == Py_None &&
           R.pooled.of(R.settings) == Py_True && R.poison.of(R.settings) == Py_False &&
           R.closed.of(parts.lane) == Py_False && R.budget.of(parts.pool) == Py_None;
}

inline bool only(PyObject *uses, PyObject *lane) {  // whether memory waits for no other lane
    return uses == Py_None || (PyDict_GET_SIZE(uses) == 1 && PyDict_Contains(uses, lane) == 1);
}

// MemoryPool.put
inline bool put(const Parts &parts, PyObject *allocation) {
    const Own id(PyLong_FromVoidPtr(allocation));
    PyObject *live = R.live.of(parts.pool);
    if (PyDict_GetItemWithError(live, id.get()) == nullptr) return PyErr_Occurred() == nullptr;
    if (PyDict_DelItem(live, id.get()) < 0) return false;
    const long long capacity = R.capacity.number(allocation);
    R.in_use.add(parts.pool, -capacity);
    PyObject *lane = R.used_by.of(allocation), *inherited = R.inherited.of(allocation);
    const bool simple = R.others.of(allocation) == Py_None && lane != Py_None && only(inherited, lane);
    if (simple && R.lane.has(lane)) {
        PyObject *left = Py_None;
        if (R.used_at.number(allocation) > R.completed.number(lane)) {
            left = PyDict_New();
            if (left == nullptr || PyDict_SetItem(left, lane, R.used_at.of(allocation)) < 0) return false;
        } else {
            Py_INCREF(left);
        }
        R.inherited.set(allocation, left);
        R.used_at.set(allocation, PyLong_FromLong(0));
        R.used_by.share(allocation, Py_None);
    } else if (!held(call(allocation, words::end_life))) {
        return false;
    }
    R.idle.add(parts.pool, capacity);
    const Own blocks(PyObject_GetItem(R.classes.of(parts.pool), R.capacity.of(allocation)));
    if (!blocks || PyList_Append(blocks.get(), allocation) < 0) return false;
    const long long most = PyLong_AsLongLong(parts.most_idle);
    if (R.idle.number(parts.pool) <= most) return true;
    const Own half(PyLong_FromLongLong(most / 2));
    return held(call(parts.pool, words::release, half.get()));
}

// Dropped.collect_held. What is no memory of the pool is left to it.
inline bool collect(const Parts &parts) {
    PyObject *items = R.items.of(parts.dropped);
    while (PyObject_Size(items) > 0) {
        const Own item(call(items, words::popleft));
        if (!item) return false;
        if (R.allocation.has(item.get()) && PyUnicode_Compare(R.owner.of(item.get()), words::pool) == 0) {
            if (!put(parts, item.get())) return false;
        } else {
            return held(call(items, words::appendleft, item.get())) && held(call(parts.dropped, words::collect_held));
        }
    }
    if (PyList_GET_SIZE(R.waiting.of(parts.dropped)) == 0) return true;
    return held(call(parts.dropped, words::collect_held));
}

// MemoryPool.take: null without an error where there is no memory now.
inline Own take(const Parts &parts, PyObject *nbytes, PyObject *label) {
    PyObject *sizes = PyDict_GetItemWithError(R.sizes.of(parts.pool), nbytes);
    PyObject *blocks = sizes ? PyDict_GetItemWithError(R.classes.of(parts.pool), PyTuple_GET_ITEM(sizes, 1)) : nullptr;
    const Py_ssize_t count = blocks ? PyList_GET_SIZE(blocks) : 0;
    if (count == 0 || !only(R.inherited.of(PyList_GET_ITEM(blocks, count - 1)), parts.lane)) {
        if (PyErr_Occurred()) return Own();
        Own found(call(parts.pool, words::take, nbytes, parts.lane, label));
        return found.get() == Py_None ? Own() : std::move(found);
    }
    Own found(shared(PyList_GET_ITEM(blocks, count - 1)));
    if (PyList_SetSlice(blocks, count - 1, count, nullptr) < 0) return Own();
    PyObject *allocation = found.get();
    const long long capacity = R.capacity.number(allocation);
    R.released.set(parts.pool, PyLong_FromLong(0));
    R.idle.add(parts.pool, -capacity);
    if (R.nbytes.number(allocation) != PyLong_AsLongLong(nbytes)) {  // `whole` follows from it
        PyObject *whole = PyTuple_Pack(3, R.handle.of(allocation), PyLong_FromLong(0), PyTuple_GET_ITEM(sizes, 0));
        if (whole == nullptr) return Own();
        R.whole.set(allocation, whole);
        R.nbytes.share(allocation, nbytes);
    }
    R.label.share(allocation, label);
    const Own id(PyLong_FromVoidPtr(allocation));
    if (PyDict_SetItem(R.live.of(parts.pool), id.get(), allocation) < 0) return Own();
    R.in_use.add(parts.pool, capacity);
    if (R.in_use.number(parts.pool) > R.peak.number(parts.pool)) R.peak.share(parts.pool, R.in_use.of(parts.pool));
    return found;
}

inline Own new_buffer(const Parts &parts, PyObject *nbytes, PyObject *label) {
    Own allocation(PyObject_IsTrue(nbytes) ? take(parts, nbytes, label) : Own(shared(Py_None)));
    if (!allocation) return Own();
    Own made(R.buffer.make());
    if (!made) return made;
    R.buffer_device.share(made.get(), parts.device);
    R.buffer_nbytes.share(made.get(), nbytes);
    R.buffer_label.share(made.get(), label);
    R.buffer_freed.share(made.get(), Py_False);
    R.buffer_allocation.set(made.get(), allocation.release());
    return made;
}

// Allocation.use, for work that has its ticket.
inline bool note_use(PyObject *allocation, PyObject *lane, PyObject *ticket) {
    PyObject *last = R.used_by.of(allocation);
    if (last == Py_None && only(R.inherited.of(allocation), lane)) {
        R.used_by.share(allocation, lane);
    } else if (last != lane && !held(call(allocation, words::change, lane))) {
        return false;
    }
    R.used_at.share(allocation, ticket);
    return true;
}

// Program.use
inline bool note_use_of_loaded(PyObject *loaded, PyObject *lane, PyObject *ticket) {
    PyObject *uses = R.uses.of(loaded);
    if (PyDict_Contains(uses, lane) == 1) return PyDict_SetItem(uses, lane, ticket) == 0;
    return held(call(loaded, words::use, lane, ticket));
}

// A plan's part: the tuple runtime.fast.Recipe.
struct Recipe {
    explicit Recipe(PyObject *tuple)
        : device(Parts::at(tuple, 0)), plan(Parts::at(tuple, 1)), segment(Parts::at(tuple, 2)),
          parameters(Parts::at(tuple, 3)), constants(Parts::at(tuple, 4)), allocated(Parts::at(tuple, 5)),
          slots(Parts::at(tuple, 6)), results(Parts::at(tuple, 7)), moving(Parts::at(tuple, 8)),
          has_scalars(Parts::at(tuple, 9) == Py_True) {}
    Parts device;
    PyObject *plan, *segment, *parameters, *constants, *allocated, *slots, *results, *moving;
    bool has_scalars;
};

struct Spot {  // what is in a slot of the plan: a buffer with its offset, or a number
    Spot(PyObject *buffer_, PyObject *offset_) : buffer(shared(buffer_)), offset(shared(offset_)) {}
    Own buffer, offset;
};

class Run {
  public:
    explicit Run(PyObject *recipe) : recipe_(recipe), parts_(recipe_.device) {}

    PyObject *operator()(PyObject *operands) {
        if (!usual(parts_) || !bind(operands)) return declined();
        Holding holding(parts_, words::allocating);
        if (!holding.entered) return declined();
        if (!collect(parts_)) return holding.fail();
        const Py_ssize_t fresh = PyTuple_GET_SIZE(recipe_.allocated);
        for (Py_ssize_t i = 0; i < fresh; ++i) {
            PyObject *wanted = PyTuple_GET_ITEM(recipe_.allocated, i);
            const Own made = new_buffer(parts_, PyTuple_GET_ITEM(wanted, 0), PyTuple_GET_ITEM(wanted, 1));
            if (!made) return PyErr_Occurred() ? holding.fail() : declined();
            spots_.emplace_back(made.get(), zero());
        }
        holding.doing(words::replay);
        if (!submit()) return holding.fail();
        holding.leave();
        if (R.refusal.of(parts_.gate) != Py_None) {  // lost meanwhile
            if (!held(call(parts_.gate, words::check))) return nullptr;
        }
        ++R.runs;
        return results();
    }

  private:
    static PyObject *zero() {
        static PyObject *const number = PyLong_FromLong(0);
        return number;
    }

    // Plan._bind; false where an operand is not what the plan takes, as it stands.
    bool bind(PyObject *operands) {
        if (!PyList_CheckExact(operands)) return false;
        const Py_ssize_t count = PyList_GET_SIZE(operands);
        if (count != PyTuple_GET_SIZE(recipe_.parameters)) return false;
        spots_.reserve(count + PyTuple_GET_SIZE(recipe_.constants) + PyTuple_GET_SIZE(recipe_.allocated));
        for (Py_ssize_t i = 0; i < count; ++i) {
            PyObject *operand = PyList_GET_ITEM(operands, i), *wanted = PyTuple_GET_ITEM(recipe_.parameters, i);
            if (wanted == Py_None) {
                if (!PyLong_Check(operand) && !PyFloat_Check(operand)) return false;
                spots_.emplace_back(nullptr, operand);
                continue;
            }
            if (!R.array.has(operand) || R.array_device.of(operand) != parts_.device ||
                R.array_dtype.of(operand) != PyTuple_GET_ITEM(wanted, 0))
                return false;
            PyObject *shape = R.array_shape.of(operand), *buffer = R.array_buffer.of(operand);
            if (shape != PyTuple_GET_ITEM(wanted, 1) &&
                PyObject_RichCompareBool(shape, PyTuple_GET_ITEM(wanted, 1), Py_EQ) != 1)
                return PyErr_Clear(), false;
            if (!R.buffer.has(buffer)) return false;
            spots_.emplace_back(buffer, R.array_offset.of(operand));
        }
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(recipe_.constants); ++i) {
            PyObject *given = PyTuple_GET_ITEM(recipe_.constants, i);
            spots_.emplace_back(PyTuple_GET_ITEM(given, 0), PyTuple_GET_ITEM(given, 1));
        }
        return true;
    }

    // Segment.replay and PreparedPlan.submit
    bool submit() {
        const Py_ssize_t count = PyTuple_GET_SIZE(recipe_.slots);
        std::vector<Own> used;
        used.reserve(count);
        bool moves = recipe_.has_scalars;
        for (Py_ssize_t i = 0; i < count; ++i) {
            PyObject *slot = PyTuple_GET_ITEM(recipe_.slots, i);
            const Spot &spot = spots_[PyLong_AsSize_t(slot)];
            moves = moves || (PyLong_AsLongLong(spot.offset.get()) != 0 && PyDict_Contains(recipe_.moving, slot) == 1);
            PyObject *buffer = spot.buffer.get(), *own = R.buffer_allocation.of(buffer);
            used.emplace_back(own != Py_None ? shared(own) : PyObject_GetAttr(buffer, words::allocation));
            if (!used.back()) return false;  // it was freed
        }
        const Own patches(moves ? patched() : PyTuple_New(0));
        const Own handles(PyList_New(count));
        if (!patches || !handles) return false;
        R.ticket.add(parts_.lane, 1);
        const Own ticket(shared(R.ticket.of(parts_.lane)));
        for (Py_ssize_t i = 0; i < count; ++i) {
            if (!note_use(used[i].get(), parts_.lane, ticket.get())) return false;
            PyList_SET_ITEM(handles.get(), i, shared(R.handle.of(used[i].get())));
        }
        if (!note_use_of_loaded(recipe_.plan, parts_.lane, ticket.get())) return false;
        PyObject *programs = R.plan_programs.of(recipe_.plan);
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(programs); ++i)
            if (!note_use_of_loaded(PyTuple_GET_ITEM(programs, i), parts_.lane, ticket.get())) return false;
        return held(call(parts_.driver, words::replay, R.lane_handle.of(parts_.lane), R.plan_handle.of(recipe_.plan),
                         handles.get(), patches.get()));
    }

    PyObject *patched() {
        const Own places(PyList_New(0));
        for (const Spot &spot : spots_)
            if (!append(places.get(), spot.buffer ? PyTuple_Pack(2, spot.buffer.get(), spot.offset.get())
                                                  : shared(spot.offset.get())))
                return nullptr;
        return call(recipe_.segment, words::patches, places.get());
    }

    PyObject *results() {
        const Py_ssize_t count = PyTuple_GET_SIZE(recipe_.results);
        Own list(PyList_New(count));
        for (Py_ssize_t i = 0; list && i < count; ++i) {
            PyObject *result = PyTuple_GET_ITEM(recipe_.results, i), *made = R.array.make();
            if (made == nullptr) return nullptr;
            const Spot &spot = spots_[PyLong_AsSize_t(PyTuple_GET_ITEM(result, 0))];
            R.array_device.share(made, parts_.device);
            R.array_buffer.share(made, spot.buffer.get());
            R.array_offset.share(made, spot.offset.get());
            R.array_dtype.share(made, PyTuple_GET_ITEM(result, 1));
            R.array_shape.share(made, PyTuple_GET_ITEM(result, 2));
            PyList_SET_ITEM(list.get(), i, made);
        }
        return list.release();
    }

    Recipe recipe_;
    const Parts &parts_;
    std::vector<Spot> spots_;
};

// Plan.run: the list of its results, or NotImplemented.
inline PyObject *run_plan(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !R.recipe.has(given[0])) return declined();
    return Run(given[0])(given[1]);
}

// Whether somebody must be told of something, or called back, when a lane has been waited for.
inline bool has_news(const Parts &parts) {
    return R.failure.of(parts.lane) != Py_None || R.orphan.of(parts.dropped) != Py_None ||
           PyList_GET_SIZE(R.deferred.of(parts.lane)) != 0 || R.refusal.of(parts.gate) != Py_None;
}

// Device.synchronize where there is the default stream alone: True, or False when the caller must (still) wait.
inline PyObject *settle(PyObject *, PyObject *given) {
    if (!R.parts.has(given)) return shared(Py_False);
    const Parts parts(given);
    PyObject *lane = parts.lane;
    if (!usual(parts) || PyDict_GET_SIZE(parts.lanes) != 1 || has_news(parts)) return shared(Py_False);
    Holding holding(parts, words::synchronize);
    if (!holding.entered) return shared(Py_False);
    const Own ticket(shared(R.ticket.of(lane)));
    const Own answer(call(parts.driver, words::synchronize, R.lane_handle.of(lane), R.slice));
    if (!answer) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
        const bool late = PyErr_ExceptionMatches(R.timeout);
        const Own error = taken_error();
        if (late) return shared(Py_False);
        if (!held(call(lane, words::keep, error.get()))) return nullptr;  // a later wait raises it
        return shared(Py_False);
    }
    if (answer.get() != Py_None || has_news(parts)) return shared(Py_False);
    if (R.completed.number(lane) < PyLong_AsLongLong(ticket.get())) R.completed.share(lane, ticket.get());
    holding.doing(words::freeing);
    if (!collect(parts)) return holding.fail();
    ++R.waits;
    return shared(Py_True);
}

}  // namespace oarlock::calls
