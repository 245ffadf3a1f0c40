// The usual ways of recording and running a tape, for oarlock.program: they do what tape.record, Tape.flush, call_site
// and Jitted._signature do, step for step, or decline before they have changed anything.
#pragma once

#include <vector>

#include "running.hpp"

namespace oarlock::calls {

struct Recording {
    Class call, counters, kind, number, place, ready, runner, settings, state, tape, tensor;
    Slot call_nbytes, call_results, flushed, outputs, kind_dtype, kind_leaf, kind_nbytes, native_record;
    Slot number_kind, number_place, number_value, calls, place_device, plans, leaves, run, eager, eager_thread, tapes;
    Slot data, failure, tensor_kind, tensor_number, tensor_place, tensor_tape;
    Slot closed, count, entries, held, leaf_numbers, limit, lock, payloads, tape_place, results, sites, thread;
    PyObject *config, *counts, *frame, *internal, *is_internal, *limits, *local, *new_lock, *places, *switch_;
    PyObject *depth, *no_attributes;
    PyObject *spare = nullptr;  // a closed tape, for the next one where nobody else knows it
    long long records = 0, flushes = 0, signatures = 0;
};
inline Recording P;

inline void take_operators();

inline PyObject *know_recording(PyObject *, PyObject *given) {
    const bool learnt =
        P.call.learn(given, "Call", {{&P.call_nbytes, "nbytes"}, {&P.call_results, "results"}}) &&
        P.counters.learn(given, "Counters", {{&P.flushed, "flushed"}, {&P.outputs, "outputs"}}) &&
        P.kind.learn(given, "Kind",
                     {{&P.kind_dtype, "dtype"}, {&P.kind_leaf, "leaf"}, {&P.kind_nbytes, "nbytes"}}) &&
        P.number.learn(given, "Number",
                       {{&P.number_kind, "_kind"}, {&P.number_place, "_place"}, {&P.number_value, "value"}}) &&
        P.place.learn(given, "Place", {{&P.calls, "calls"}, {&P.place_device, "device"}, {&P.plans, "plans"}}) &&
        P.ready.learn(given, "Ready", {{&P.native_record, "record"}}) &&
        P.runner.learn(given, "Runner", {{&P.leaves, "leaves"}, {&P.run, "run"}}) &&
        P.settings.learn(given, "Config", {{&P.eager, "eager"}}) &&
        P.state.learn(given, "ThreadState", {{&P.eager_thread, "eager"}, {&P.tapes, "tapes"}}) &&
        P.tape.learn(given, "Tape", {{&P.closed, "closed"}, {&P.count, "count"}, {&P.entries, "entries"},
                                     {&P.held, "held"}, {&P.leaf_numbers, "leaf_numbers"}, {&P.limit, "limit"},
                                     {&P.lock, "lock"}, {&P.payloads, "payloads"}, {&P.tape_place, "place"},
                                     {&P.results, "results"}, {&P.sites, "sites"}, {&P.thread, "thread"}}) &&
        P.tensor.learn(given, "Tensor", {{&P.data, "_data"}, {&P.failure, "_failure"}, {&P.tensor_kind, "_kind"},
                                         {&P.tensor_number, "_number"}, {&P.tensor_place, "_place"},
                                         {&P.tensor_tape, "_tape"}});
    if (!learnt || !lock_type.learn(given, "new_lock") ||
        !learn(given, {{&P.config, "config"}, {&P.counts, "counters"}, {&P.frame, "getframe"},
                       {&P.internal, "internal"}, {&P.is_internal, "is_internal"}, {&P.limits, "limits"},
                       {&P.local, "local"}, {&P.new_lock, "new_lock"}, {&P.places, "places"}, {&P.switch_, "ready"}}))
        return nullptr;
    P.depth = PyLong_FromLong(2);  // as seen from tape.record: above it, and above who called that
    P.no_attributes = PyDict_New();
    take_operators();
    Py_RETURN_NONE;
}

namespace words {
inline PyObject *const again = word("failed"), *const held_bytes = word("held_bytes"), *const leaf = word("leaf"),
                *const operators = word("operators"), *const overflow = word("overflow"),
                *const recipe = word("_recipe"), *const state = word("state");
}

// Holds the lock of a tape, where no other thread does.
class Locked {
    Own lock_;

  public:
    explicit Locked(PyObject *tape) : lock_(shared(P.lock.of(tape))), entered(lock_type.take(lock_.get())) {}
    Locked(const Locked &) = delete;
    ~Locked() {
        if (entered) lock_type.give(lock_.get());
    }
    const bool entered;
};

// sites.call_site: (code, offset) of the innermost frame outside the package, or None.
inline PyObject *call_site(Own frame) {
    while (frame) {
        auto *at = reinterpret_cast<PyFrameObject *>(frame.get());
        const Own code(reinterpret_cast<PyObject *>(PyFrame_GetCode(at)));
        PyObject *file = reinterpret_cast<PyCodeObject *>(code.get())->co_filename;
        Own inside(shared(PyDict_GetItemWithError(P.internal, file)));
        if (!inside && !PyErr_Occurred()) inside = Own(PyObject_CallOneArg(P.is_internal, file));
        if (!inside) return nullptr;
        if (inside.get() == Py_False) {
            const Own offset(PyLong_FromLong(PyFrame_GetLasti(at)));
            return offset ? PyTuple_Pack(2, code.get(), offset.get()) : nullptr;
        }
        frame = Own(reinterpret_cast<PyObject *>(PyFrame_GetBack(at)));
    }
    return PyErr_Occurred() ? nullptr : shared(Py_None);
}

inline PyObject *kind_of(PyObject *operand) {
    return P.number.has(operand) ? P.number_kind.of(operand) : P.tensor_kind.of(operand);
}

// Whether an operand can be recorded as it is: on this place, and there, or pending on this tape.
inline bool ready(PyObject *operand, PyObject *place, PyObject *tape) {
    if (P.number.has(operand)) return P.number_place.of(operand) == place;
    return P.tensor.has(operand) && P.tensor_place.of(operand) == place &&
           (P.data.of(operand) != Py_None || P.tensor_tape.of(operand) == tape);
}

// What finds the memoised inference: (name, *attributes.items(), kinds ...); null without an error for odd attributes.
inline Own inference_key(PyObject *name, PyObject *attributes, PyObject *const *operands, Py_ssize_t count) {
    const Py_ssize_t given = PyDict_GET_SIZE(attributes);
    Own key(PyTuple_New(1 + given + count));
    if (!key) return key;
    PyTuple_SET_ITEM(key.get(), 0, shared(name));
    Py_ssize_t at = 1, position = 0;
    for (PyObject *attribute, *value; PyDict_Next(attributes, &position, &attribute, &value);) {
        PyObject *item = PyTuple_Pack(2, attribute, value);
        if (item == nullptr) return Own();
        PyTuple_SET_ITEM(key.get(), at++, item);
    }
    for (Py_ssize_t i = 0; i < count; ++i)
        PyTuple_SET_ITEM(key.get(), at++, shared(kind_of(operands[i])));
    return key;
}

// The number of an operand on the tape, a new reference; data is entered as a leaf, once (Tape.leaf).
inline PyObject *number_on(PyObject *tape, PyObject *operand) {
    const bool number = P.number.has(operand);
    if (!number && P.data.of(operand) == Py_None) return shared(P.tensor_number.of(operand));
    PyObject *data = number ? operand : P.data.of(operand), *kind = kind_of(operand);
    const Own id(PyLong_FromVoidPtr(data));
    PyObject *known = PyDict_GetItemWithError(P.leaf_numbers.of(tape), id.get());
    if (known != nullptr || PyErr_Occurred()) return shared(known);
    if (P.number.has(data)) return call(tape, words::leaf, kind, data);
    Own entered(PyLong_FromSsize_t(PyList_GET_SIZE(P.results.of(tape))));
    if (!entered || PyDict_SetItem(P.leaf_numbers.of(tape), id.get(), entered.get()) < 0 ||
        !append(P.entries.of(tape), PyTuple_Pack(1, P.kind_leaf.of(kind))) ||
        PyList_Append(P.sites.of(tape), Py_None) < 0 || PyList_Append(P.results.of(tape), Py_None) < 0 ||
        PyList_Append(P.payloads.of(tape), data) < 0)
        return nullptr;
    P.held.add(tape, P.kind_nbytes.number(kind));
    return entered.release();
}

// Tape(place, state); one that is closed and known here alone is as good as a new one, when it is opened again.
inline Own empty_tape() {
    if (P.spare != nullptr && Py_REFCNT(P.spare) == 1) return Own(std::exchange(P.spare, nullptr));
    Own made(P.tape.make()), numbers(PyDict_New()), lock(PyObject_CallNoArgs(P.new_lock));
    if (!made || !numbers || !lock) return Own();
    for (const Slot *slot : {&P.entries, &P.sites, &P.results, &P.payloads}) {
        PyObject *empty = PyList_New(0);
        if (empty == nullptr) return Own();
        slot->set(made.get(), empty);
    }
    P.leaf_numbers.set(made.get(), numbers.release());
    P.lock.set(made.get(), lock.release());
    return made;
}

// ThreadState.tape where the thread has none for the place: a new one.
inline Own new_tape(PyObject *state, PyObject *place) {
    const bool eager = P.eager.of(P.config) == Py_True || P.eager_thread.number(state) != 0;
    Own made(empty_tape()), limit(eager ? PyLong_FromLong(1) : PyObject_GetAttr(P.limits, words::operators));
    if (!made || !limit) return Own();
    PyObject *tape = made.get();
    P.tape_place.share(tape, place);
    P.thread.share(tape, state);
    P.closed.share(tape, Py_False);
    P.count.set(tape, PyLong_FromLong(0));
    P.held.set(tape, PyLong_FromLong(0));
    P.limit.set(tape, limit.release());
    return PyDict_SetItem(P.tapes.of(state), place, tape) == 0 ? std::move(made) : Own();
}

// tape.pending
inline Own new_tensor(PyObject *kind, PyObject *place, PyObject *tape) {
    Own made(P.tensor.make());
    if (!made) return made;
    PyObject *results = P.results.of(tape);
    P.tensor_kind.share(made.get(), kind);
    P.tensor_place.share(made.get(), place);
    P.data.share(made.get(), Py_None);
    P.failure.share(made.get(), Py_None);
    P.tensor_tape.share(made.get(), tape);
    P.tensor_number.set(made.get(), PyLong_FromSsize_t(PyList_GET_SIZE(results)));
    return append(results, PyWeakref_NewRef(made.get(), nullptr)) ? std::move(made) : Own();
}

// tape.record, where the call has been seen. `user` gives the frame that the search for the call's line starts at.
template <class Frame>
PyObject *record_on(PyObject *state, PyObject *place, PyObject *name, PyObject *const *operands, Py_ssize_t count,
                    PyObject *attributes, Frame user) {
    if (!P.state.has(state) || !P.place.has(place)) return declined();
    Own tape_(shared(PyDict_GetItemWithError(P.tapes.of(state), place)));
    if (!tape_ && !PyErr_Occurred()) tape_ = new_tape(state, place);
    PyObject *tape = tape_.get();
    if (tape == nullptr || !PyObject_TypeCheck(tape, P.tape.type)) return PyErr_Clear(), declined();
    for (Py_ssize_t i = 0; i < count; ++i)
        if (!ready(operands[i], place, tape)) return declined();
    const Own key = inference_key(name, attributes, operands, count);
    const Own call_(key ? shared(PyDict_GetItemWithError(P.calls.of(place), key.get())) : nullptr);
    if (!P.call.has(call_.get())) return PyErr_Clear(), declined();
    Own site(call_site(user()));
    if (!site) return PyErr_Clear(), declined();
    const Locked locked(tape);
    if (!locked.entered || P.closed.of(tape) != Py_False) return declined();

    Own entry(PyTuple_New(1 + count));
    if (!entry) return nullptr;
    PyTuple_SET_ITEM(entry.get(), 0, shared(call_.get()));
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *number = number_on(tape, operands[i]);
        if (number == nullptr) return nullptr;
        PyTuple_SET_ITEM(entry.get(), i + 1, number);
    }
    if (!append(P.entries.of(tape), entry.release()) || !append(P.sites.of(tape), site.release())) return nullptr;
    PyObject *kinds = P.call_results.of(call_.get());
    const Py_ssize_t several = PyTuple_GET_SIZE(kinds);
    Own made(several == 1 ? nullptr : PyTuple_New(several));
    for (Py_ssize_t i = 0; i < several; ++i) {
        Own tensor = new_tensor(PyTuple_GET_ITEM(kinds, i), place, tape);
        if (!tensor) return nullptr;
        if (several == 1) {
            made = std::move(tensor);
        } else {
            PyTuple_SET_ITEM(made.get(), i, tensor.release());
        }
    }
    P.count.add(tape, 1);
    P.held.add(tape, P.call_nbytes.number(call_.get()));
    const Own most(PyObject_GetAttr(P.limits, words::held_bytes));
    if (!most) return nullptr;
    if (P.count.number(tape) >= P.limit.number(tape) || P.held.number(tape) >= PyLong_AsLongLong(most.get()))
        if (!held(call(tape, words::overflow))) return nullptr;
    ++P.records;
    return made.release();
}

// tape.record(state, place, name, operands, attributes)
inline PyObject *record(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count != 5 || !PyTuple_CheckExact(given[3]) || !PyDict_CheckExact(given[4])) return declined();
    return record_on(given[0], given[1], given[2], &PyTuple_GET_ITEM(given[3], 0), PyTuple_GET_SIZE(given[3]), given[4],
                     [] { return Own(PyObject_CallOneArg(P.frame, P.depth)); });
}

// An operator between two tensors of one dtype, recorded without a Python frame. All else goes to Tensor's methods.
template <binaryfunc PyNumberMethods::*Which>
struct Operator {
    static inline PyObject *name, *method, *reflected;

    static void take(const char *name_, const char *method_, const char *reflected_) {
        name = word(name_);
        method = word(method_);
        reflected = word(reflected_);
        P.tensor.type->tp_as_number->*Which = &called;
    }

    static PyObject *called(PyObject *left, PyObject *right) {
        Own made(recorded(left, right));
        if (made.get() != Py_NotImplemented) return made.release();
        return PyObject_TypeCheck(left, P.tensor.type) ? call(left, method, right) : call(right, reflected, left);
    }

    static PyObject *recorded(PyObject *left, PyObject *right) {
        if (!P.tensor.has(left) || !P.tensor.has(right) || P.native_record.of(P.switch_) == Py_None) return declined();
        PyObject *kinds[] = {P.tensor_kind.of(left), P.tensor_kind.of(right)};
        if (!P.kind.has(kinds[0]) || !P.kind.has(kinds[1]) || P.kind_dtype.of(kinds[0]) != P.kind_dtype.of(kinds[1]))
            return declined();
        const Own state(PyObject_GetAttr(P.local, words::state));
        if (!state) return nullptr;
        PyObject *operands[] = {left, right};
        return record_on(state.get(), P.tensor_place.of(left), name, operands, 2, P.no_attributes,
                         [] { return Own(shared(reinterpret_cast<PyObject *>(PyEval_GetFrame()))); });
    }
};

inline void take_operators() {
    Operator<&PyNumberMethods::nb_add>::take("add", "__add__", "__radd__");
    Operator<&PyNumberMethods::nb_subtract>::take("subtract", "__sub__", "__rsub__");
    Operator<&PyNumberMethods::nb_multiply>::take("multiply", "__mul__", "__rmul__");
}

struct Waiting {
    Own tensor;
    Py_ssize_t number;
};

// Tape.waiting: the living tensors that wait for a tape. False: there are none, or they are of a class of their own.
inline bool waiting_for(PyObject *tape, std::vector<Waiting> &found) {
    PyObject *results = P.results.of(tape);
    for (Py_ssize_t number = 0; number < PyList_GET_SIZE(results); ++number) {
        PyObject *reference = PyList_GET_ITEM(results, number);
        if (reference == Py_None) continue;
#if PY_VERSION_HEX >= 0x030D0000
        PyObject *object = nullptr;
        if (PyWeakref_GetRef(reference, &object) <= 0) continue;
        Own tensor(object);
#else
        Own tensor(shared(PyWeakref_GetObject(reference)));
#endif
        if (tensor.get() == Py_None) continue;
        if (!P.tensor.has(tensor.get())) return false;
        if (P.tensor_tape.of(tensor.get()) == tape &&
            P.tensor_number.number(tensor.get()) == number)
            found.push_back({std::move(tensor), number});
    }
    return !found.empty();
}

// The data that a program takes: payloads of the tape, run-time scalars as numbers.
inline Own operands_of(PyObject *runner, PyObject *payloads) {
    PyObject *leaves = P.leaves.of(runner);
    Own data(PyList_New(PyTuple_GET_SIZE(leaves)));
    for (Py_ssize_t i = 0; data && i < PyTuple_GET_SIZE(leaves); ++i) {
        PyObject *given = PyList_GET_ITEM(payloads, PyLong_AsSsize_t(PyTuple_GET_ITEM(leaves, i)));
        PyList_SET_ITEM(data.get(), i, shared(P.number.has(given) ? P.number_value.of(given) : given));
    }
    return data;
}

// Tape.close: empties what it holds, which nobody else does.
inline bool close_tape(PyObject *tape) {
    P.closed.share(tape, Py_True);
    for (const Slot *slot : {&P.entries, &P.sites, &P.results, &P.payloads}) {
        const Own list(shared(slot->of(tape)));
        if (PyList_SetSlice(list.get(), 0, PyList_GET_SIZE(list.get()), nullptr) < 0) return false;
    }
    PyDict_Clear(P.leaf_numbers.of(tape));
    P.thread.share(tape, Py_None);  // which nobody asks a closed tape for
    P.tape_place.share(tape, Py_None);
    Py_XDECREF(std::exchange(P.spare, shared(tape)));
    return true;
}

// Hands results over; what is no result for each tensor is an error, as it is in Python.
inline PyObject *finish(PyObject *tape, const std::vector<Waiting> &waiting, PyObject *given) {
    const Own results_(PySequence_Fast(given, "a program gives a list of results"));
    PyObject *results = results_.get();
    if (results == nullptr) return nullptr;
    if (PySequence_Fast_GET_SIZE(results) != static_cast<Py_ssize_t>(waiting.size()))
        return PyErr_Format(PyExc_ValueError, "%zd tensors wait for %R", waiting.size(), results);
    for (std::size_t i = 0; i < waiting.size(); ++i) {
        PyObject *tensor = waiting[i].tensor.get();
        P.data.share(tensor, PySequence_Fast_GET_ITEM(results, i));
        P.failure.share(tensor, Py_None);
        P.tensor_tape.share(tensor, Py_None);
    }
    return close_tape(tape) ? shared(Py_None) : nullptr;
}

// What a program gives. The method of a plan that has a recipe begins with run_plan, which needs no frame of it.
inline PyObject *run_program(PyObject *program, PyObject *data) {
    if (PyMethod_Check(program)) {
        const Own recipe(PyObject_GetAttr(PyMethod_GET_SELF(program), words::recipe));
        if (!recipe) PyErr_Clear();
        if (R.recipe.has(recipe.get())) {
            Own results(Run(recipe.get())(data));
            if (results.get() != Py_NotImplemented) return results.release();
        }
    }
    return PyObject_CallOneArg(program, data);
}

// Tape.flush of a tape whose structure has been seen: None, or the failure, which is left in the results.
inline PyObject *flush(PyObject *, PyObject *tape) {
    if (!P.tape.has(tape)) return declined();
    const Locked locked(tape);
    PyObject *place = P.tape_place.of(tape);
    if (!locked.entered || P.closed.of(tape) != Py_False || !P.place.has(place)) return declined();
    std::vector<Waiting> waiting;
    if (!waiting_for(tape, waiting)) return declined();
    const Own numbers(PyTuple_New(waiting.size()));
    for (std::size_t i = 0; numbers && i < waiting.size(); ++i)
        PyTuple_SET_ITEM(numbers.get(), i, PyLong_FromSsize_t(waiting[i].number));
    const Own entries(PyList_AsTuple(P.entries.of(tape)));
    const Own key(entries && numbers ? PyTuple_Pack(2, entries.get(), numbers.get()) : nullptr);
    const Own runner(key ? shared(PyDict_GetItemWithError(P.plans.of(place), key.get())) : nullptr);
    if (!P.runner.has(runner.get())) return PyErr_Clear(), declined();

    PyObject *tapes = P.tapes.of(P.thread.of(tape));
    if (PyDict_GetItemWithError(tapes, place) == tape && PyDict_DelItem(tapes, place) < 0) return nullptr;
    P.flushed.add(P.counts, 1);
    P.outputs.add(P.counts, static_cast<long long>(waiting.size()));
    const Own data = operands_of(runner.get(), P.payloads.of(tape));
    const Own results(data ? run_program(P.run.of(runner.get()), data.get()) : nullptr);
    if (results) {
        ++P.flushes;
        return finish(tape, waiting, results.get());
    }
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
    const Own error = taken_error();
    const Own failed(PyDict_New());
    for (const Waiting &one : waiting) {
        const Own number(PyLong_FromSsize_t(one.number));
        if (!failed || !number || PyDict_SetItem(failed.get(), number.get(), one.tensor.get()) < 0) return nullptr;
    }
    return call(tape, words::again, failed.get(), error.get());
}

// Jitted._signature(arguments, leaf) for tensors alone, that are there: the key of their program, and their data.
inline PyObject *signature(PyObject *, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyTuple_CheckExact(given[0]) || PyTuple_GET_SIZE(given[0]) == 0) return declined();
    const Py_ssize_t arguments = PyTuple_GET_SIZE(given[0]);
    PyObject *first = PyTuple_GET_ITEM(given[0], 0);
    PyObject *place = P.tensor.has(first) ? P.tensor_place.of(first) : nullptr;
    const Own key(PyTuple_New(2 * arguments + 1)), data(PyList_New(arguments));
    if (!key || !data) return nullptr;
    for (Py_ssize_t i = 0; i < arguments; ++i) {
        PyObject *tensor = PyTuple_GET_ITEM(given[0], i);
        if (!P.tensor.has(tensor) || P.tensor_place.of(tensor) != place || P.data.of(tensor) == Py_None ||
            P.number.has(P.data.of(tensor)))
            return declined();
        PyTuple_SET_ITEM(key.get(), i, shared(given[1]));
        PyTuple_SET_ITEM(key.get(), arguments + i, shared(P.tensor_kind.of(tensor)));
        PyList_SET_ITEM(data.get(), i, shared(P.data.of(tensor)));
    }
    PyTuple_SET_ITEM(key.get(), 2 * arguments, shared(place));
    ++P.signatures;
    return PyTuple_Pack(2, key.get(), data.get());
}

// synchronize(device): True; False when nothing has been waited for; the failure of what this thread has recorded, when
// it has run and nothing has been waited for.
inline PyObject *synchronize(PyObject *, PyObject *name) {
    PyObject *place = PyUnicode_CheckExact(name) ? PyDict_GetItemWithError(P.places, name) : nullptr;
    const Own parts(P.place.has(place) ? PyObject_GetAttr(P.place_device.of(place), words::parts) : nullptr);
    const Own state(parts ? PyObject_GetAttr(P.local, words::state) : nullptr);
    if (!P.state.has(state.get())) return PyErr_Clear(), shared(Py_False);
    if (PyDict_GET_SIZE(P.tapes.of(state.get())) != 0) {
        Py_ssize_t position = 0;
        PyObject *first = nullptr, *tape = nullptr;
        if (PyDict_GET_SIZE(P.tapes.of(state.get())) != 1 ||
            !PyDict_Next(P.tapes.of(state.get()), &position, &first, &tape))
            return shared(Py_False);
        const Own open(shared(tape));
        Own failure(flush(nullptr, tape));
        if (!failure) return nullptr;
        if (failure.get() == Py_NotImplemented) return shared(Py_False);
        if (failure.get() != Py_None) return failure.release();
    }
    return settle(nullptr, parts.get());
}

}  // namespace oarlock::calls
