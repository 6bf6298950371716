// Objects that each thread has one of, made when it first asks.
//
// A thread_local object with a destructor will not do: the C library takes memory to note the
// destructor, and ends the process where there is none.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace fastload {

// The thread's own T, which goes with the thread. Throws std::bad_alloc, and what T's constructor
// throws; it is made anew then at the next call.
template <class T>
T& per_thread() {
  struct Key {
    Key() {
      if (::pthread_key_create(&key, [](void* mine) { delete static_cast<T*>(mine); }) != 0) {
        throw std::bad_alloc();
      }
    }
    pthread_key_t key;
  };
  static const Key all;  // never deleted: threads may end after static objects
  thread_local T* mine = nullptr;
  if (mine == nullptr) {
    auto made = std::make_unique<T>();
    if (::pthread_setspecific(all.key, made.get()) != 0) throw std::bad_alloc();
    mine = made.release();
  }
  return *mine;
}

}  // namespace fastload
