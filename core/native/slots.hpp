// Slots of Python classes, read and written in place: what makes the native calls fast. The classes stay Python's.
#pragma once

#include <initializer_list>
#include <utility>

#include <Python.h>
#include <structmember.h>

namespace oarlock::calls {

// Owns one reference.
class Own {
  public:
    Own() = default;
    explicit Own(PyObject *object) : object_(object) {}
    Own(Own &&other) noexcept : object_(other.release()) {}
    Own &operator=(Own &&other) noexcept {
        PyObject *old = object_;
        object_ = other.release();
        Py_XDECREF(old);
        return *this;
    }
    ~Own() { Py_XDECREF(object_); }

    PyObject *get() const { return object_; }
    PyObject *release() { return std::exchange(object_, nullptr); }
    explicit operator bool() const { return object_ != nullptr; }

  private:
    PyObject *object_ = nullptr;
};

inline PyObject *shared(PyObject *object) {
    Py_XINCREF(object);
    return object;
}

// One entry of a class's __slots__, found once by name. It must only be used on objects of that class.
class Slot {
  public:
    bool find(PyObject *type, const char *name) {
        const Own member(PyObject_GetAttrString(type, name));
        if (!member) return false;
        if (Py_TYPE(member.get()) != &PyMemberDescr_Type) {
            PyErr_Format(PyExc_TypeError, "%R has no slot %s", type, name);
            return false;
        }
        at_ = reinterpret_cast<PyMemberDescrObject *>(member.get())->d_member->offset;
        return true;
    }

    PyObject *of(PyObject *object) const { return *place(object); }  // borrowed; null where it was never set

    void set(PyObject *object, PyObject *value) const {  // takes the reference
        PyObject *old = std::exchange(*place(object), value);
        Py_XDECREF(old);
    }
    void share(PyObject *object, PyObject *value) const { set(object, shared(value)); }

    long long number(PyObject *object) const { return PyLong_AsLongLong(of(object)); }
    void add(PyObject *object, long long amount) const { set(object, PyLong_FromLongLong(number(object) + amount)); }

  private:
    PyObject **place(PyObject *object) const {
        return reinterpret_cast<PyObject **>(reinterpret_cast<char *>(object) + at_);
    }
    Py_ssize_t at_ = 0;
};

// Keeps objects that Python gives by name; false, with an error, where it leaves one out.
inline bool learn(PyObject *given, std::initializer_list<std::pair<PyObject **, const char *>> objects) {
    for (const auto &[object, name] : objects) {
        *object = shared(PyDict_GetItemString(given, name));
        if (*object == nullptr) return PyErr_Format(PyExc_KeyError, "%s", name), false;
    }
    return true;
}

// A class, and the slots of it that are used.
struct Class {
    PyTypeObject *type = nullptr;

    bool learn(PyObject *given, const char *name, std::initializer_list<std::pair<Slot *, const char *>> slots) {
        PyObject *found = nullptr;
        if (!calls::learn(given, {{&found, name}})) return false;
        for (const auto &[slot, text] : slots)
            if (!slot->find(found, text)) return false;
        type = reinterpret_cast<PyTypeObject *>(found);
        return true;
    }
    bool has(PyObject *object) const { return object != nullptr && Py_TYPE(object) == type; }
    PyObject *make() const { return type->tp_alloc(type, 0); }  // as object.__new__: no slot is set
};

inline PyObject *word(const char *text) { return PyUnicode_InternFromString(text); }

// object.name(arguments...), a new reference.
template <class... Arguments>
PyObject *call(PyObject *object, PyObject *name, Arguments... arguments) {
    PyObject *given[] = {object, arguments...};
    return PyObject_VectorcallMethod(name, given, (1 + sizeof...(arguments)) | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

inline bool held(PyObject *answer) {  // whether a call gave something, which is dropped
    Py_XDECREF(answer);
    return answer != nullptr;
}

inline bool append(PyObject *list, PyObject *item) {  // takes the reference
    const Own owned(item);
    return owned && PyList_Append(list, item) == 0;
}

// The type of threading.RLock; its methods are called as the C functions that they are, which spares looking for them.
class Lock {
  public:
    bool learn(PyObject *given, const char *name) {
        PyObject *found = nullptr;
        if (!calls::learn(given, {{&found, name}})) return false;
        type_ = reinterpret_cast<PyTypeObject *>(found);
        at_once_ = PyTuple_Pack(1, Py_False);
        acquire_ = reinterpret_cast<PyCFunctionWithKeywords>(
            reinterpret_cast<void (*)()>(method(found, "acquire", METH_VARARGS | METH_KEYWORDS)));
        release_ = method(found, "release", METH_NOARGS);
        return at_once_ != nullptr;
    }
    bool take(PyObject *lock) const {  // false: another thread has it, or it is no such lock
        if (Py_TYPE(lock) != type_ || acquire_ == nullptr || release_ == nullptr) return false;
        const Own taken(acquire_(lock, at_once_, nullptr));
        if (!taken) PyErr_Clear();
        return taken.get() == Py_True;
    }
    void give(PyObject *lock) const {  // an error that is set stays
        PyObject *kind, *value, *trace;
        PyErr_Fetch(&kind, &value, &trace);
        held(release_(lock, nullptr));
        PyErr_Restore(kind, value, trace);
    }

  private:
    static PyCFunction method(PyObject *of, const char *name, int flags) {  // null: this Python has another one
        const Own found(PyObject_GetAttrString(of, name));
        if (!found) PyErr_Clear();
        if (!found || Py_TYPE(found.get()) != &PyMethodDescr_Type) return nullptr;
        const PyMethodDef *known = reinterpret_cast<PyMethodDescrObject *>(found.get())->d_method;
        return known->ml_flags == flags ? known->ml_meth : nullptr;
    }
    PyTypeObject *type_ = nullptr;
    PyCFunctionWithKeywords acquire_ = nullptr;
    PyCFunction release_ = nullptr;
    PyObject *at_once_ = nullptr;
};
inline Lock lock_type;

// The error that is set, taken off, as one object.
inline Own taken_error() {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != nullptr) PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return Own(value);
}

inline PyObject *declined() { return shared(Py_NotImplemented); }  // Python does it: nothing has been changed

}  // namespace oarlock::calls
