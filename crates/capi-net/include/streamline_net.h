/* Sockets over flows. Generated from crates/capi-net/src; `UPDATE=1 cargo test -p capi-net header` writes it again. */

#ifndef STREAMLINE_NET_H
#define STREAMLINE_NET_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

/*
 A TCP connection, a TCP listener, or a UDP socket. Threads may share it, except for `sl_net_close`. A child made by
 `fork` must not use it.
 */
typedef struct sl_socket sl_socket;

/*
 Facts about a socket's interface and address.
 */
typedef struct {
  /*
   Hardware address of the interface.
   */
  uint8_t mac[6];
  /*
   Length of the prefix of the socket's address, bits.
   */
  uint8_t prefix;
  /*
   1: the interface has the socket's address. 0: no packets travel until the address is back.
   */
  uint8_t has_address;
  /*
   Bytes of the longest IP packet.
   */
  uint32_t mtu;
} sl_net_facts;

/*
 Options for opening a socket. Fill it with zeros, then set the fields that should differ. A field's comment says
 what 0 or NULL means.
 */
typedef struct {
  /*
   Path of the daemon's control socket. NULL: the one in the environment variable STREAMLINE_DAEMON, or the usual one.
   */
  const char *daemon;
  /*
   The interface. NULL: the one that routes to the peer, or the only one.
   */
  const char *device;
  /*
   The share of the wire, for example "4ms/100ms". NULL: an equal part of the rest.
   */
  const char *share;
  /*
   The blocks of the stack below `tcp` or `udp`. NULL: `ipv4 | ethernet DEVICE`.
   */
  const char *stack;
  /*
   For `sl_net_connect`: address and port of this side; port 0: any free one. NULL: the interface's address, any
   port.
   */
  const struct sockaddr *local;
  /*
   Length of `local`.
   */
  socklen_t local_length;
  /*
   For `sl_net_listen`: connections that may wait, 1024 at most. 0: 128.
   */
  uint32_t backlog;
  /*
   Bytes of the receive buffer of a connection. 0: 256 KiB.
   */
  uint32_t receive_bytes;
  /*
   Bytes of the send buffer of a connection. 0: 256 KiB.
   */
  uint32_t send_bytes;
  /*
   For `sl_net_connect`: how long the handshake may take, in milliseconds. 0: a minute.
   */
  uint32_t connect_timeout_ms;
  /*
   Called with `context` when the facts about the socket's interface change; for a listener, those of the
   connections that it accepts. A thread of the library makes the call, perhaps several at once. The function must
   neither wait nor use the socket. NULL: no call.
   */
  void (*on_change)(void *context, const sl_net_facts *facts);
  /*
   The argument of `on_change`.
   */
  void *context;
  /*
   Not 0: calls do not wait, as after `sl_net_set_nonblocking`, and `sl_net_connect` does not wait for the
   handshake.
   */
  int32_t nonblocking;
} sl_net_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The text, for people, of this thread's last call that returned a negative number other than -EAGAIN and
 -EINPROGRESS. Valid until the next such call. Empty in an exit handler.
 */
const char *sl_net_error(void);

/*
 Connects to `peer`. `options` may be NULL. 0, or a negative errno. With `options->nonblocking` it does not wait;
 `sl_net_connected` then gives the state of the handshake.

 # Safety

 `options` is null or filled as its fields say; `peer` has `length` bytes; `socket` has room for the handle.
 */
int32_t sl_net_connect(const sl_net_options *options,
                       const struct sockaddr *peer,
                       socklen_t length,
                       sl_socket **socket);

/*
 The result of a handshake that `sl_net_connect` did not wait for: 0, -EINPROGRESS while it goes on, or once a
 negative errno. The file descriptor of `sl_net_writable_fd` becomes readable at its end.

 # Safety

 `socket` is from `sl_net_connect`.
 */
int32_t sl_net_connected(sl_socket *socket);

/*
 Listens for connections at `local`. Address 0.0.0.0: all of the interface's; port 0: any free one. `options` may be
 NULL. 0, or a negative errno.

 # Safety

 As for `sl_net_connect`.
 */
int32_t sl_net_listen(const sl_net_options *options,
                      const struct sockaddr *local,
                      socklen_t length,
                      sl_socket **socket);

/*
 Waits for a connection of a listener. Writes the address of its other side to `peer`; `*length` is the room there,
 and becomes the address's length. Both may be NULL. Calls for the connection wait, even if those for the listener do
 not. 0, or a negative errno.

 # Safety

 `listener` is from `sl_net_listen`; `socket` has room for the handle; `peer` has `*length` bytes.
 */
int32_t sl_net_accept(sl_socket *listener,
                      sl_socket **socket,
                      struct sockaddr *peer,
                      socklen_t *length);

/*
 Opens a UDP socket at `local`, which is read as by `sl_net_listen`. `options` may be NULL. 0, or a negative errno.

 # Safety

 As for `sl_net_connect`.
 */
int32_t sl_net_udp(const sl_net_options *options,
                   const struct sockaddr *local,
                   socklen_t length,
                   sl_socket **socket);

/*
 Makes a UDP socket send to this peer, and receive from it only. 0, or a negative errno.

 # Safety

 `socket` is from `sl_net_udp`; `peer` has `length` bytes.
 */
int32_t sl_net_set_peer(sl_socket *socket, const struct sockaddr *peer, socklen_t length);

/*
 Reads the bytes that are there, at most `len`. A UDP socket reads one datagram, and loses the part that does not
 fit. Gives the bytes read, 0 at the end of a connection, or a negative errno.

 # Safety

 `socket` is open; `buffer` has room for `len` bytes.
 */
int64_t sl_net_read(sl_socket *socket,
                    void *buffer,
                    uintptr_t len);

/*
 As `sl_net_read`, but the bytes can be read again.

 # Safety

 As for `sl_net_read`.
 */
int64_t sl_net_peek(sl_socket *socket, void *buffer, uintptr_t len);

/*
 As `sl_net_read`, into `count` pieces one after the other, at most 1024.

 # Safety

 `socket` is open; `pieces` has `count` elements, each with room for as many bytes as it says.
 */
int64_t sl_net_readv(sl_socket *socket, const struct iovec *pieces, uintptr_t count);

/*
 Writes all bytes, or those that there is room for if calls do not wait. A UDP socket sends one datagram to its peer.
 Gives the bytes written, or a negative errno: -EPIPE after the end (without a signal), -EMSGSIZE for a datagram
 longer than the MTU allows.

 # Safety

 `socket` is open; `buffer` has `len` bytes.
 */
int64_t sl_net_write(sl_socket *socket,
                     const void *buffer,
                     uintptr_t len);

/*
 As `sl_net_write`, from `count` pieces one after the other, at most 1024.

 # Safety

 `socket` is open; `pieces` has `count` elements, each with as many bytes as it says.
 */
int64_t sl_net_writev(sl_socket *socket, const struct iovec *pieces, uintptr_t count);

/*
 As `sl_net_read` for a UDP socket. Writes the sender's address to `from`; `*length` is the room there, and becomes
 the address's length. Both may be NULL.

 # Safety

 `socket` is from `sl_net_udp`; `buffer` has room for `len` bytes, `from` for `*length`.
 */
int64_t sl_net_receive_from(sl_socket *socket,
                            void *buffer,
                            uintptr_t len,
                            struct sockaddr *from,
                            socklen_t *length);

/*
 Sends one datagram to `to`. Gives the bytes sent, or a negative errno, which may be about an earlier datagram.

 # Safety

 `socket` is from `sl_net_udp`; `buffer` has `len` bytes, `to` has `length`.
 */
int64_t sl_net_send_to(sl_socket *socket,
                       const void *buffer,
                       uintptr_t len,
                       const struct sockaddr *to,
                       socklen_t length);

/*
 Ends reading (SHUT_RD), writing (SHUT_WR) or both (SHUT_RDWR) of a connection. Bytes written before still go out. 0,
 or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_shutdown(sl_socket *socket,
                        int32_t how);

/*
 A file descriptor to poll for POLLIN: readable while a call to read or accept would not wait. For a UDP socket it is
 readable if there was news since a call returned -EAGAIN, so call until it does. It belongs to the socket: do not
 read, write or close it. Gives the descriptor, or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_poll_fd(sl_socket *socket);

/*
 A file descriptor to poll for POLLIN, not POLLOUT: readable while a call to write would not wait. For a UDP socket
 it is that of `sl_net_poll_fd`. It belongs to the socket, as that one does.

 # Safety

 `socket` is open.
 */
int32_t sl_net_writable_fd(sl_socket *socket);

/*
 Makes calls return -EAGAIN instead of waiting (not 0), or wait (0). 0, or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_nonblocking(sl_socket *socket, int32_t on);

/*
 Sets how many milliseconds a call to read or to write waits before it returns -EAGAIN. 0, as at first: no limit. 0,
 or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_timeouts(sl_socket *socket,
                            uint32_t read_ms,
                            uint32_t write_ms);

/*
 Makes a connection send small writes at once (not 0), or wait for an acknowledgement of earlier ones (0, as at
 first). 0, or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_nodelay(sl_socket *socket,
                           int32_t on);

/*
 Sets how many milliseconds `sl_net_close` waits until the other side of a connection has acknowledged everything.
 Negative, as at first: it does not wait, and the rest goes out afterwards. 0: it resets the connection. 0, or a
 negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_linger(sl_socket *socket,
                          int32_t ms);

/*
 Probes a quiet connection at this interval of milliseconds. After ten intervals without an answer it ends with
 -ETIMEDOUT. 0, as at first: no probes. 0, or a negative errno.

 # Safety

 `socket` is open.
 */
int32_t sl_net_set_keepalive(sl_socket *socket,
                             uint32_t ms);

/*
 The error at a connection's end, or the last report about a datagram, as a negative errno, once. 0: there is none.

 # Safety

 `socket` is open.
 */
int32_t sl_net_take_error(sl_socket *socket);

/*
 Address and port of this side. `*length` is the room at `address`, and becomes the address's length. 0, or a
 negative errno.

 # Safety

 `socket` is open; `address` has room for `*length` bytes.
 */
int32_t sl_net_local(sl_socket *socket,
                     struct sockaddr *address,
                     socklen_t *length);

/*
 Address and port of the other side; arguments as for `sl_net_local`. -ENOTCONN if there is none.

 # Safety

 As for `sl_net_local`.
 */
int32_t sl_net_peer(sl_socket *socket, struct sockaddr *address, socklen_t *length);

/*
 The present facts about a connection or a UDP socket. 0, or a negative errno.

 # Safety

 `socket` is open; `facts` has room for the answer.
 */
int32_t sl_net_facts_of(sl_socket *socket, sl_net_facts *facts);

/*
 Closes a socket. Bytes written to a connection still go out, for at most a minute, even after the program's `exit`;
 unread bytes reset it. The handle is gone, whatever the result. 0, or a negative errno.

 # Safety

 `socket` is null, or open; no other thread uses it.
 */
int32_t sl_net_close(sl_socket *socket);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STREAMLINE_NET_H */
