# Sends to several sockets at once, without the interpreter's lock: the caller's thread and one more. Included by _out_buffer.pyx.
#
# Each destination is one `Send`, which one of the two threads claims. The caller waits only for what the other one has claimed: should
# the other never run, the caller sends everything itself.

cdef extern from "sys/socket.h" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen

    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    ssize_t sendmsg(int fd, const msghdr* message, int flags)

cdef extern from "signal.h" nogil:
    ctypedef struct sigset_t:
        pass

    int SIG_SETMASK
    int sigfillset(sigset_t* signals)
    int pthread_sigmask(int how, const sigset_t* signals, sigset_t* before)

cdef extern from "pthread.h" nogil:
    ctypedef struct pthread_t:
        pass

    ctypedef struct pthread_attr_t:
        pass

    ctypedef struct pthread_mutex_t:
        pass

    ctypedef struct pthread_cond_t:
        pass

    int PTHREAD_CREATE_DETACHED
    int pthread_attr_init(pthread_attr_t* attributes)
    int pthread_attr_destroy(pthread_attr_t* attributes)
    int pthread_attr_setdetachstate(pthread_attr_t* attributes, int state)
    int pthread_setname_np(pthread_t thread, const char* name)
    int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*) noexcept nogil, void* argument)
    int pthread_mutex_init(pthread_mutex_t* mutex, const void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)
    int pthread_cond_init(pthread_cond_t* condition, const void* attributes)
    int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex)
    int pthread_cond_signal(pthread_cond_t* condition)


cdef struct Send:
    int fd
    iovec* vectors
    int count
    Py_ssize_t size  # of all vectors
    Py_ssize_t sent  # of them: what the kernel accepted; 0 after an error, which shows at the transport's own attempt


cdef struct Worker:
    pthread_mutex_t lock
    pthread_cond_t work
    pthread_cond_t done
    bint is_running
    Send* sends  # the rest is guarded by `lock`
    int count
    int claimed
    int at_work  # claimed by the other thread and not sent yet


cdef Worker worker


cdef void send_one(Send* one) noexcept nogil:
    cdef msghdr message
    cdef Py_ssize_t sent = 0
    if one.size:
        memset(&message, 0, sizeof(message))
        message.msg_iov = one.vectors
        message.msg_iovlen = one.count
        sent = sendmsg(one.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
    one.sent = sent if sent > 0 else 0


cdef void* work(void* argument) noexcept nogil:
    cdef Send* one
    pthread_mutex_lock(&worker.lock)
    while True:
        while worker.claimed >= worker.count:
            pthread_cond_wait(&worker.work, &worker.lock)
        one = worker.sends + worker.claimed
        worker.claimed += 1
        worker.at_work = 1
        pthread_mutex_unlock(&worker.lock)
        send_one(one)
        pthread_mutex_lock(&worker.lock)
        worker.at_work = 0
        if worker.claimed >= worker.count:
            pthread_cond_signal(&worker.done)
    return NULL


cdef bint start_worker() noexcept nogil:
    # Signals are for the thread that Python handles them in.
    cdef pthread_t thread
    cdef pthread_attr_t attributes
    cdef sigset_t every, before
    pthread_mutex_init(&worker.lock, NULL)
    pthread_cond_init(&worker.work, NULL)
    pthread_cond_init(&worker.done, NULL)
    worker.count = worker.claimed = worker.at_work = 0
    pthread_attr_init(&attributes)
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED)
    sigfillset(&every)
    pthread_sigmask(SIG_SETMASK, &every, &before)
    worker.is_running = pthread_create(&thread, &attributes, work, NULL) == 0
    if worker.is_running:
        pthread_setname_np(thread, b"eyot-send")
    pthread_sigmask(SIG_SETMASK, &before, NULL)
    pthread_attr_destroy(&attributes)
    return worker.is_running


def _forget_worker():
    # In the child of a fork, which has only the thread that forked.
    worker.is_running = False


os.register_at_fork(after_in_child=_forget_worker)


cdef void send_all(Send* sends, int count) noexcept nogil:
    # Has the kernel accept what it can of each, with the other thread's help.
    cdef int index
    if not worker.is_running and not start_worker():
        for index in range(count):
            send_one(sends + index)
        return
    pthread_mutex_lock(&worker.lock)
    worker.sends, worker.count, worker.claimed = sends, count, 0
    pthread_cond_signal(&worker.work)
    while worker.claimed < worker.count:
        index = worker.claimed
        worker.claimed += 1
        pthread_mutex_unlock(&worker.lock)
        send_one(sends + index)
        pthread_mutex_lock(&worker.lock)
    while worker.at_work:
        pthread_cond_wait(&worker.done, &worker.lock)
    worker.count = worker.claimed = 0
    pthread_mutex_unlock(&worker.lock)
