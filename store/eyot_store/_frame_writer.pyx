# cython: language_level=3, boundscheck=False, wraparound=False, auto_pickle=False, embedsignature=False
"""Writes frames of the journal in a thread that runs no Python: the compiled twin of frame_writer.py, which documents the class."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.errno cimport EINTR, EIO, ENOMEM, errno
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

import os

cdef extern from "sys/uio.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

    ssize_t pwritev2(int fd, const iovec* vectors, int count, long offset, int flags)

cdef extern from "time.h" nogil:
    ctypedef int clockid_t

    struct timespec:
        long tv_sec
        long tv_nsec

    clockid_t CLOCK_MONOTONIC
    int clock_gettime(clockid_t clock, timespec* now)

cdef extern from "unistd.h" nogil:
    int fdatasync(int fd)
    ssize_t write(int fd, const void* data, size_t size)

cdef extern from "semaphore.h" nogil:
    ctypedef struct sem_t:
        pass

    int sem_init(sem_t* semaphore, int shared, unsigned int value)
    int sem_destroy(sem_t* semaphore)
    int sem_post(sem_t* semaphore)
    int sem_wait(sem_t* semaphore)
    int sem_trywait(sem_t* semaphore)

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass

    int SIG_SETMASK
    int sigfillset(sigset_t* signals)
    int pthread_sigmask(int how, const sigset_t* signals, sigset_t* before)

cdef extern from "pthread.h" nogil:
    ctypedef unsigned long pthread_t

    int pthread_create(pthread_t* thread, const void* attributes, void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_setname_np(pthread_t thread, const char* name)
    int pthread_join(pthread_t thread, void** result)


cdef struct Write:
    int fd
    const char* data
    Py_ssize_t size
    long at


cdef struct Work:
    sem_t given
    sem_t done
    int event
    bint stopping
    Write frame
    Write mark  # fd -1: none
    int flags
    bint flush
    int result  # of the frame: 0, or errno
    int64_t flush_ns


cdef int write_all(Write* one, int flags) noexcept nogil:
    cdef iovec vector
    cdef Py_ssize_t written = 0, more
    while written < one.size:
        vector.iov_base = <void*>(one.data + written)
        vector.iov_len = one.size - written
        more = pwritev2(one.fd, &vector, 1, one.at + written, flags)
        if more < 0:
            if errno == EINTR:
                continue
            return errno
        if more == 0:
            return EIO
        written += more
    return 0


cdef int64_t now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef void* run(void* argument) noexcept nogil:
    cdef Work* work = <Work*>argument
    cdef uint64_t one = 1
    while True:
        while sem_wait(&work.given):
            pass  # a signal
        if work.stopping:
            return NULL
        work.flush_ns = -now_ns()
        work.result = write_all(&work.frame, work.flags)
        if work.result == 0 and work.flush and fdatasync(work.frame.fd):
            work.result = errno
        work.flush_ns += now_ns()
        if work.result == 0 and work.mark.fd >= 0:
            write_all(&work.mark, 0)  # it only confirms the journal's end
        sem_post(&work.done)
        write(work.event, &one, sizeof(one))


cdef class FrameWriter:
    cdef Work work
    cdef pthread_t thread
    cdef bint is_running
    cdef object keep  # what the thread reads

    def __cinit__(self, int event):
        cdef sigset_t every, before
        memset(&self.work, 0, sizeof(self.work))
        self.work.event = event
        sem_init(&self.work.given, 0, 0)
        sem_init(&self.work.done, 0, 0)
        # Signals are for the thread that Python handles them in.
        sigfillset(&every)
        pthread_sigmask(SIG_SETMASK, &every, &before)
        cdef int failed = pthread_create(&self.thread, NULL, run, &self.work)
        if not failed:
            pthread_setname_np(self.thread, b"eyot-write")
        pthread_sigmask(SIG_SETMASK, &before, NULL)
        if failed:
            raise OSError(failed, os.strerror(failed))
        self.is_running = True

    def start(self, int fd, bytes data not None, long at, int flags, bint flush, mark):
        self.work.frame.fd = fd
        self.work.frame.data = PyBytes_AS_STRING(data)
        self.work.frame.size = PyBytes_GET_SIZE(data)
        self.work.frame.at = at
        self.work.flags = flags
        self.work.flush = flush
        cdef bytes mark_data
        if mark is None:
            self.work.mark.fd = -1
            self.keep = data
        else:
            self.work.mark.fd, mark_data, self.work.mark.at = mark
            self.work.mark.data = PyBytes_AS_STRING(mark_data)
            self.work.mark.size = PyBytes_GET_SIZE(mark_data)
            self.keep = (data, mark_data)
        sem_post(&self.work.given)

    @property
    def flush_ns(self):
        return self.work.flush_ns

    def result(self):
        if sem_trywait(&self.work.done):
            return None
        self.keep = None
        return self.work.result

    def wait(self):
        with nogil:
            while sem_wait(&self.work.done):
                pass
        self.keep = None
        return self.work.result

    def close(self):
        if self.is_running:
            self.is_running = False
            self.work.stopping = True
            sem_post(&self.work.given)
            with nogil:
                pthread_join(self.thread, NULL)
            sem_destroy(&self.work.given)
            sem_destroy(&self.work.done)
