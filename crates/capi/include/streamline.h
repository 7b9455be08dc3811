/* Rings as pipes. Generated from crates/capi/src; `UPDATE=1 cargo test -p capi --test header` writes it anew. */

#ifndef STREAMLINE_H
#define STREAMLINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/*
 Open for reading.
 */
#define SL_READ 1

/*
 Open for writing.
 */
#define SL_WRITE 2

/*
 Calls that would wait return -EAGAIN.
 */
#define SL_NONBLOCK 4

/*
 Begin at the oldest block that is there; for readers that hold nothing.
 */
#define SL_OLDEST 8

/*
 When this reader is a whole ring behind, the newest block is dropped; else the writer waits.
 */
#define SL_DROP_NEWEST 16

/*
 When this reader is a whole ring behind, it is overtaken.
 */
#define SL_OVERWRITE 32

/*
 As SL_OVERWRITE; readers that were overtaken stay together.
 */
#define SL_SHARED 64

/*
 Write also while nobody reads: it is lost.
 */
#define SL_UNREAD 128

/*
 Wake sleeping readers with every block written; else with every 32, by `sl_flush`, and within their own bound.
 */
#define SL_EVERY 256

/*
 For `sl_window`: all of the ring.
 */
#define SL_WINDOW_WHOLE 0

/*
 For `sl_window`: as little of the ring as its readers need to keep up with.
 */
#define SL_WINDOW_AUTO UINT64_MAX

/*
 One end of a ring.
 */
typedef struct sl_pipe sl_pipe;

/*
 What a peek shows.
 */
typedef struct {
  /*
   The bytes, where they lie. NULL where they may not be read; then `refused` says why.
   */
  const void *bytes;
  /*
   How many there are.
   */
  uint64_t len;
  /*
   When the block was seen: nanoseconds since 1970 UTC.
   */
  uint64_t time;
  /*
   What was said of it: its class.
   */
  uint32_t block_class;
  /*
   Its length on the wire.
   */
  uint32_t wire;
  /*
   0, or the negative errno that its ring's keeper gives.
   */
  int32_t refused;
  /*
   Do the bytes lie in another ring than the one that is read?
   */
  int32_t elsewhere;
} sl_block;

/*
 How an end is.
 */
typedef struct {
  /*
   Longest block; of a stream, what the ring holds.
   */
  uint64_t block_bytes;
  /*
   Blocks read or written.
   */
  uint64_t blocks;
  /*
   Bytes read or written.
   */
  uint64_t bytes;
  /*
   Lost by this reader (it was overtaken), or dropped by this writer: blocks; bytes, of a stream.
   */
  uint64_t lost;
  /*
   Blocks forwarded to this writer by their descriptor alone.
   */
  uint64_t forwarded;
  /*
   Blocks forwarded to this writer whose bytes had to be copied.
   */
  uint64_t copied;
  /*
   Blocks that this reader forwarded and others have not read yet.
   */
  uint64_t outstanding;
  /*
   Rings that this reader fetched since a block lay in them.
   */
  uint64_t faults;
  /*
   Readers of this writer's ring.
   */
  uint64_t readers;
  /*
   Bytes of payload that this writer uses, of a ring of descriptors; else 0: all there are.
   */
  uint64_t window;
  /*
   'c', 'p', 'v' or 'd'.
   */
  char kind;
} sl_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Opens the ring of this name (or whose keeper's socket is at this path). 0, or a negative errno.

 # Safety

 `name` is a text that ends with a zero byte, `pipe` a place for the handle.
 */
int32_t sl_open(const char *name, uint32_t flags, sl_pipe **pipe);

/*
 Reads at most one block, or what is left of one; of a stream, what there is. Bytes read, 0 at the end, or a negative
 errno.

 # Safety

 `pipe` is from `sl_open`; `buffer` has room for `len` bytes.
 */
int64_t sl_read(sl_pipe *pipe,
                void *buffer,
                uintptr_t len);

/*
 Writes one block; of a stream as much as there is room for, all where it waits. Bytes written, or a negative errno:
 -EPIPE when all readers have left (there is no signal), -EMSGSIZE for a block that can never fit.

 # Safety

 `pipe` is from `sl_open`; `buffer` has `len` bytes.
 */
int64_t sl_write(sl_pipe *pipe,
                 const void *buffer,
                 uintptr_t len);

/*
 Shows what the next read would give, where it lies. 1, 0 at the end, or a negative errno.

 # Safety

 `pipe` is from `sl_open`; `block` is a place for what is seen.
 */
int32_t sl_peek(sl_pipe *pipe, sl_block *block);

/*
 Takes the first `len` bytes of what was peeked last, SIZE_MAX for all. 0, or a negative errno: -ESTALE where they were
 overwritten while they were looked at.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_release(sl_pipe *pipe,
                   uintptr_t len);

/*
 Gives the first `len` bytes (SIZE_MAX: all) of what was peeked last to another ring, and takes them. No byte is copied
 where that is a ring of descriptors. Bytes given, or a negative errno; then nothing was taken, but for -ESTALE.

 # Safety

 Both are from `sl_open`.
 */
int64_t sl_forward(sl_pipe *from,
                   sl_pipe *to,
                   uintptr_t len);

/*
 The same to `count` rings. After -EAGAIN call it again with the same rings in the same order: it goes on where it
 stopped.

 # Safety

 All are from `sl_open`, all of `to` are different; `to` has `count` elements.
 */
int64_t sl_tee(sl_pipe *from,
               sl_pipe *const *to,
               uintptr_t count,
               uintptr_t len);

/*
 A file descriptor to poll. Of a reader: readable (POLLIN) when there is something to read, or the end. Of a writer:
 writable (POLLOUT) when a block of 4,096 bytes (or the longest there can be) can be written without waiting, or a write
 fails at once; its POLLIN means nothing. It belongs to the handle: do not read, write or close it. The descriptor, or a
 negative errno.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_poll_fd(sl_pipe *pipe);

/*
 The descriptor that `sl_poll_fd` gives of a writer; from here on it is writable when there is room for `len` bytes. What
 can never fit fails at once, and so can be written.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_poll_room(sl_pipe *pipe,
                     uintptr_t len);

/*
 Wakes readers that sleep through a batch. 0, or a negative errno.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_flush(sl_pipe *pipe);

/*
 Goes on in a ring of at least so many bytes and slots (0: as many as suit). 0, or a negative errno.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_resize(sl_pipe *pipe, uint64_t bytes, uint64_t slots);

/*
 Uses so many bytes of a ring of descriptors from here on (rounded up to a power of two), so that what is written stays
 in the processor's cache; SL_DECK_WHOLE for all of it, SL_DECK_AUTO to find out how many will do. A ring of another size
 keeps to it. 0, or a negative errno: -EINVAL for rings of other kinds.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_window(sl_pipe *pipe,
                  uint64_t bytes);

/*
 Waits until what was forwarded is read, so that closing overwrites nothing unread. 0, or a negative errno.

 # Safety

 `pipe` is from `sl_open`.
 */
int32_t sl_drain(sl_pipe *pipe);

/*
 Says how an end is. 0, or a negative errno.

 # Safety

 `pipe` is from `sl_open`; `stat` is a place for the answer.
 */
int32_t sl_stat(sl_pipe *pipe, sl_stats *stat);

/*
 Closes an end: a writer's ring ends in order. The handle is gone whatever this returns. 0, or a negative errno.

 # Safety

 `pipe` is null, or from `sl_open` and not closed yet.
 */
int32_t sl_close(sl_pipe *pipe);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STREAMLINE_H */
