/* Requests inside a program. Generated from crates/capi-request/src; `UPDATE=1 cargo test -p capi-request --test header` writes it anew. */

#ifndef STREAMLINE_REQUEST_H
#define STREAMLINE_REQUEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/*
 Of a block: a frame of the link layer.
 */
#define SL_TYPE_FRAME 1

/*
 Of a block: a network-layer packet.
 */
#define SL_TYPE_PACKET 2

/*
 Of a block: a piece of a byte stream.
 */
#define SL_TYPE_BYTES 3

/*
 Of a block: a piece of a message.
 */
#define SL_TYPE_MESSAGE 4

/*
 Of a block: a record.
 */
#define SL_TYPE_RECORD 5

/*
 Of a block: the first of its stream or message.
 */
#define SL_BLOCK_FIRST 1

/*
 Of a block: the last of its stream or message.
 */
#define SL_BLOCK_LAST 2

/*
 Of a block: the end of its stream or message is missing.
 */
#define SL_BLOCK_CUT 4

/*
 Of a block: it holds a record, of which `sl_request_text`, `sl_request_number` and `sl_request_json` tell.
 */
#define SL_BLOCK_RECORD 8

/*
 Of a block: it comes from the server of its stream. Only where `ip_version` is not 0.
 */
#define SL_BLOCK_SERVER 16

/*
 For `sl_request_push`: the block comes from the server of its stream; else from the client. Not for frames.
 */
#define SL_PUSH_SERVER 1

/*
 For `sl_request_push`: more of the same message follows. For messages only.
 */
#define SL_PUSH_MORE 2

/*
 For `sl_request_push`: the stream ends behind this block. For byte streams only.
 */
#define SL_PUSH_LAST 4

/*
 For `sl_request_push`: nothing will be pushed after this call; with no bytes it pushes nothing.
 */
#define SL_PUSH_END 8

/*
 A request.
 */
typedef struct sl_request sl_request;

/*
 A block that came out of a request.
 */
typedef struct {
  /*
   The bytes, where they lie.
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
   Its type: SL_TYPE_FRAME and so on.
   */
  uint32_t kind;
  /*
   What else is said of it: SL_BLOCK_FIRST and so on.
   */
  uint32_t flags;
  /*
   Its class: pieces of one stream or message have the same.
   */
  uint32_t block_class;
  /*
   The end of the request that it came out of, counted from 0.
   */
  uint32_t end;
  /*
   Its length on the wire.
   */
  uint32_t wire;
  /*
   Bytes that are missing before it, of a stream or message.
   */
  uint32_t missing;
  /*
   Link type of a frame or packet; 0 for others.
   */
  uint32_t link_type;
  /*
   4 or 6; 0 where no stream is known, and the fields below mean nothing.
   */
  uint32_t ip_version;
  /*
   Protocol number of the stream: 6 for TCP, 17 for UDP.
   */
  uint32_t protocol;
  /*
   Port of the client.
   */
  uint16_t client_port;
  /*
   Port of the server.
   */
  uint16_t server_port;
  /*
   Address of the client, in network order; the first 4 bytes for version 4.
   */
  uint8_t client[16];
  /*
   Address of the server.
   */
  uint8_t server[16];
} sl_request_block;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Opens a request: everything it needs is open, or nothing is. 0, or -1; then `sl_request_error` says why. Close the handle
 in both cases; it is NULL where `text` is NULL.

 # Safety

 `text` ends with a zero byte; `request` is a place for the handle.
 */
int32_t sl_request_open(const char *text,
                        sl_request **request);

/*
 The same with variables: names and values in turn, and NULL behind the last. `$name` in the request stands for its value,
 whatever characters that has. NULL for none.

 # Safety

 As of `sl_request_open`; all of `variables` end with a zero byte.
 */
int32_t sl_request_open_with(const char *text,
                             const char *const *variables,
                             sl_request **request);

/*
 The next block that comes out of the request. 1; 0 at the end or, of a request that the program feeds, until it pushes
 more; or -1. An error of the request comes after its blocks, and with every further call.

 # Safety

 `request` is from `sl_request_open`; `block` is a place for what is seen.
 */
int32_t sl_request_next(sl_request *request,
                        sl_request_block *block);

/*
 Pushes a block into a request that begins with `push_frames`, `push_bytes` or `push_messages`. Its bytes are copied.
 0, or -1. The call takes back the block that `sl_request_next` gave.

 # Safety

 `request` is from `sl_request_open`; `bytes` has `len` bytes, and may be NULL where `len` is 0.
 */
int32_t sl_request_push(sl_request *request,
                        const void *bytes,
                        uintptr_t len,
                        uint32_t flags);

/*
 Finds a text in the record of the block that `sl_request_next` gave last. 1; 0 where the record has no such text; -1 where the
 block holds no record. `text` gets where it lies, `len` its length: no zero byte stands behind it.

 # Safety

 `request` is from `sl_request_open`; `name` ends with a zero byte; `text` and `len` are places.
 */
int32_t sl_request_text(sl_request *request,
                        const char *name,
                        const char **text,
                        uintptr_t *len);

/*
 The same of a number, a time (nanoseconds since 1970 UTC) or a flag (0 or 1).

 # Safety

 `request` is from `sl_request_open`; `name` ends with a zero byte; `number` is a place.
 */
int32_t sl_request_number(sl_request *request, const char *name, uint64_t *number);

/*
 The record of the block that `sl_request_next` gave last, as one JSON object that ends with a zero byte; NULL where the block
 holds no record.

 # Safety

 `request` is NULL or from `sl_request_open`.
 */
const char *sl_request_json(sl_request *request);

/*
 What the last call that gave -1 or NULL has to say: a text for people, good until the next call for the handle. Empty
 where nothing was wrong. Never NULL.

 # Safety

 `request` is NULL or from `sl_request_open`.
 */
const char *sl_request_error(const sl_request *request);

/*
 Ends the request, wherever it is, and frees the handle. 0, or -1 where it ended with an error or is NULL.

 # Safety

 `request` is NULL or from `sl_request_open`, and is not used again.
 */
int32_t sl_request_close(sl_request *request);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STREAMLINE_REQUEST_H */
