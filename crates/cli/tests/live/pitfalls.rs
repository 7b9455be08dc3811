//! Unmodified programs (`streamline net run`) that do more with sockets than read and write: one small program for each
//! case, whose assertions describe the kernel's sockets. Also UDP.

use crate::net::*;
use crate::unmodified::{done, far, run, serve, with_program};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::sync::mpsc::channel;

/// The beginning of every program. 10.0.0.1:7001 echoes, 10.0.0.1:7002 has no listener.
const BEGIN: &str = "\
import array, errno, fcntl, os, select, signal, socket, struct, subprocess, sys, threading, time
ECHO, NOBODY, ME = ('10.0.0.1', 7001), ('10.0.0.1', 7002), '10.0.0.2'
signal.alarm(30)
def connected():
    return socket.create_connection(ECHO)
def echo(s, said=b'hello'):
    s.sendall(said)
    heard = b''
    while len(heard) < len(said):
        heard += s.recv(1000)
    assert heard == said, heard
def fails(what, act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        assert error.errno == what, error
    else:
        assert False, 'it did not fail'
def listener(port):
    s = socket.socket()
    s.bind((ME, port))
    s.listen()
    return s
def far_connects(port):
    # The far side connects to whoever asks it to, and echoes.
    ask = socket.create_connection(('10.0.0.1', 7003))
    ask.sendall(struct.pack('!H', port))
    ask.close()
";

const PROGRAMS: &[(&str, &str)] = &[
    (
        "dup",
        "
s = connected()
copy = s.dup()
os.dup2(s.fileno(), 200)
s.close()
echo(copy)
os.write(200, b'x')
assert copy.recv(1) == b'x'
copy.close()
assert os.fstat(200).st_mode & 0o170000 == 0o140000
fails(errno.ESPIPE, os.lseek, 200, 0, 0)
",
    ),
    (
        "accept4 and the flags of accepted sockets",
        "
l = listener(6001)
far_connects(6001)
s, peer = l.accept()
assert peer[0] == '10.0.0.1' and s.getsockname() == (ME, 6001) and s.getpeername() == peer
assert fcntl.fcntl(s, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
assert not fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK
l.setblocking(False)
far_connects(6001)
select.select([l], [], [])
s, _ = l.accept()
assert not fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK
echo(s)
fails(errno.EAGAIN, l.accept)
",
    ),
    (
        "shutdown wakes recv and accept",
        "
s, l = connected(), listener(6002)
said = []
def waits(act):
    try: said.append(act())
    except OSError as error: said.append(error.errno)
threads = [threading.Thread(target=waits, args=(act,)) for act in (lambda: s.recv(10), lambda: l.accept())]
for t in threads: t.start()
time.sleep(0.3)
s.shutdown(socket.SHUT_RDWR)
l.shutdown(socket.SHUT_RDWR)
for t in threads: t.join(5)
assert sorted(said, key=str) == [errno.EINVAL, b''] or sorted(said, key=str) == [b'', errno.EINVAL], said
",
    ),
    (
        "FIONREAD, MSG_PEEK and MSG_WAITALL",
        "
s = connected()
s.sendall(b'0123456789')
assert s.recv(1, socket.MSG_PEEK) == b'0'
while len(s.recv(10, socket.MSG_PEEK)) < 10: time.sleep(0.01)
count = array.array('i', [0])
fcntl.ioctl(s, 0x541b, count)
assert count[0] == 10
assert s.recv(4) == b'0123'
def more():
    time.sleep(0.2)
    s.sendall(b'abcdef')
t = threading.Thread(target=more)
t.start()
assert s.recv(12, socket.MSG_WAITALL) == b'456789abcdef'
t.join()
fails(errno.EAGAIN, s.recv, 1, socket.MSG_DONTWAIT)
",
    ),
    (
        "SO_ERROR of a refused connect",
        "
s = socket.socket()
s.setblocking(False)
assert s.connect_ex(NOBODY) == errno.EINPROGRESS
p = select.poll()
p.register(s, select.POLLOUT)
assert p.poll(5000)
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.setblocking(True)
assert s.connect_ex(NOBODY) == errno.ECONNREFUSED
s = socket.socket()
assert s.connect_ex(NOBODY) == errno.ECONNREFUSED
s.connect(ECHO)
echo(s)
",
    ),
    (
        "a second connect",
        "
s = connected()
assert s.connect_ex(ECHO) == errno.EISCONN
s = socket.socket()
s.setblocking(False)
# Nobody has this address: the handshake goes on.
assert s.connect_ex(('10.0.0.77', 1)) == errno.EINPROGRESS
assert s.connect_ex(('10.0.0.77', 1)) == errno.EALREADY
assert not select.select([], [s], [], 0)[1]
",
    ),
    (
        "the port is known before listen",
        "
for address in (ME, '0.0.0.0'):
    s = socket.socket()
    s.bind((address, 0))
    port = s.getsockname()[1]
    assert port > 0
    s.listen()
    assert s.getsockname()[1] == port
    far_connects(port)
    echo(s.accept()[0])
s = socket.socket()
s.bind((ME, 0))
port = s.getsockname()[1]
s.connect(ECHO)
assert s.getsockname() == (ME, port)
echo(s)
",
    ),
    (
        "what a socket is",
        "
def get(s, level, name): return s.getsockopt(level, name)
L = socket.SOL_SOCKET
s, l = connected(), listener(6003)
u = socket.socket(type=socket.SOCK_DGRAM)
u.connect(ECHO)
for it, kind, protocol in ((s, socket.SOCK_STREAM, socket.IPPROTO_TCP), (l, socket.SOCK_STREAM, socket.IPPROTO_TCP),
                           (u, socket.SOCK_DGRAM, socket.IPPROTO_UDP)):
    assert get(it, L, socket.SO_TYPE) == kind
    assert get(it, L, socket.SO_DOMAIN) == socket.AF_INET
    assert get(it, L, socket.SO_PROTOCOL) == protocol
assert (get(s, L, socket.SO_ACCEPTCONN), get(l, L, socket.SO_ACCEPTCONN)) == (0, 1)
state = lambda s: s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[0]
assert (state(s), state(l)) == (1, 10)
b = socket.socket()
b.bind((ME, 6004))
assert state(b) == 7
b.setblocking(False)
b.connect_ex(('10.0.0.77', 1))
assert state(b) == 2
",
    ),
    (
        "io_uring is not there",
        "
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.syscall(425, 4, bytes(120)) == -1
assert ctypes.get_errno() == errno.ENOSYS
",
    ),
    (
        "SO_LINGER 0 resets",
        "
s = connected()
s.sendall(b'reset?')
assert s.recv(6) == b'reset?'
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
s.close()
s = connected()
s.sendall(b'last?')
assert s.recv(100) == b'reset', 'the peer saw no reset'
",
    ),
    (
        "fork",
        "
s = connected()
if os.fork() == 0:
    echo(s, b'child')
    s.close()
    os._exit(0)
assert os.wait()[1] == 0
echo(s, b'parent')
",
    ),
    (
        "SCM_RIGHTS",
        "
a, b = socket.socketpair()
if os.fork() == 0:
    a.close()
    _, fds, _, _ = socket.recv_fds(b, 1, 1)
    s = socket.socket(fileno=fds[0])
    echo(s)
    assert s.getpeername() == ECHO
    os._exit(0)
b.close()
s = connected()
socket.send_fds(a, [b'x'], [s.fileno()])
s.close()
assert os.wait()[1] == 0
",
    ),
    (
        "EPOLLET",
        "
s = socket.socket()
s.setblocking(False)
e = select.epoll()
e.register(s, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
s.connect_ex(ECHO)
events = 0
while not events & select.EPOLLOUT: events |= e.poll(5)[0][1]
assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
s.send(b'one')
while not e.poll(5)[0][1] & select.EPOLLIN: pass
assert s.recv(1) == b'o'
time.sleep(0.2)
# What was not read is no news: this ends.
while e.poll(0.3): pass
assert s.recv(1, socket.MSG_PEEK) == b'n'
s.send(b'two')
assert e.poll(5)[0][1] & select.EPOLLIN
e.modify(s, select.EPOLLIN | select.EPOLLONESHOT)
assert e.poll(5) and not e.poll(0)
outer = select.epoll()
outer.register(e.fileno(), select.EPOLLIN)
e.modify(s, select.EPOLLIN)
assert outer.poll(5)
",
    ),
    (
        "sendfile with an offset",
        "
with open('numbers', 'wb') as f: f.write(bytes(range(100)))
f = open('numbers', 'rb')
s = connected()
assert os.sendfile(s.fileno(), f.fileno(), 10, 50) == 50
assert f.tell() == 0
assert s.recv(50, socket.MSG_WAITALL) == bytes(range(10, 60))
assert os.sendfile(s.fileno(), f.fileno(), 90, 50) == 10
assert s.recv(10, socket.MSG_WAITALL) == bytes(range(90, 100))
",
    ),
    (
        "subprocess",
        "
s = connected()
assert subprocess.run(['/bin/echo', 'hello'], close_fds=True, capture_output=True).stdout == b'hello\\n'
echo(s)
# A child whose input and output are the connection.
subprocess.run(['/bin/sh', '-c', 'echo shell'], stdin=s, stdout=s, check=True)
assert s.recv(6, socket.MSG_WAITALL) == b'shell\\n'
child = 'import socket; s = socket.socket(fileno=%d); s.sendall(b\"exec\"); print(s.getpeername()[1])' % s.fileno()
said = subprocess.run([sys.executable, '-c', child], pass_fds=[s.fileno()], capture_output=True, check=True).stdout
assert said == b'7001\\n', said
assert s.recv(4, socket.MSG_WAITALL) == b'exec'
",
    ),
    (
        "select with many",
        "
many = [connected() for _ in range(60)]
assert max(s.fileno() for s in many) < 1024
many[41].sendall(b'x')
readable, _, _ = select.select(many, [], [], 5)
assert readable == [many[41]]
_, writable, _ = select.select([], many, [], 5)
assert len(writable) == 60
",
    ),
    (
        "SIGPIPE and EPIPE",
        "
def broken():
    s = connected()
    s.sendall(b'hang up')
    try:
        while s.recv(100): pass
    except ConnectionResetError:
        pass
    return s
def sends_on(s, flags):
    for _ in range(200):
        s.send(b'x', flags)
        time.sleep(0.01)
try:
    sends_on(broken(), 0)
    assert False, 'it did not fail'
except (BrokenPipeError, ConnectionResetError):
    pass
got = []
signal.signal(signal.SIGPIPE, lambda *_: got.append(1))
try: sends_on(broken(), 0)
except OSError: pass
assert got
got.clear()
try: sends_on(broken(), socket.MSG_NOSIGNAL)
except OSError: pass
assert not got
",
    ),
    (
        "two processes accept",
        "
l = listener(6005)
r, w = os.pipe()
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        while True:
            s, _ = l.accept()
            echo(s)
            os.write(w, b'x')
    children.append(child)
for _ in range(10): far_connects(6005)
count = 0
while count < 10: count += len(os.read(r, 10))
for child in children: os.kill(child, signal.SIGKILL)
",
    ),
    (
        "exec with an empty environment",
        "
s = connected()
child = 'import os; fd = %d; os.write(fd, b\"bare\"); assert os.read(fd, 4) == b\"bare\"' % s.fileno()
subprocess.run([sys.executable, '-c', child], pass_fds=[s.fileno()], env={}, check=True)
echo(s)
",
    ),
    (
        "one epoll, three threads",
        "
e, woken, lock = select.epoll(), [], threading.Lock()
many = {s.fileno(): s for s in (connected() for _ in range(20))}
for fd in many: e.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
def waits():
    while True:
        for fd, _ in e.poll(1, 1):
            said = many[fd].recv(10)
            with lock: woken.append(said)
        if len(woken) == 20: return
threads = [threading.Thread(target=waits) for _ in range(3)]
for t in threads: t.start()
for fd, s in many.items(): s.send(b'%d' % fd)
for t in threads: t.join(10)
assert sorted(woken) == sorted(b'%d' % fd for fd in many), woken
",
    ),
    (
        "time limits and options",
        "
L, T = socket.SOL_SOCKET, socket.IPPROTO_TCP
s = connected()
s.setsockopt(L, socket.SO_RCVTIMEO, struct.pack('ll', 0, 200_000))
begun = time.monotonic()
fails(errno.EAGAIN, s.recv, 1)
assert 0.1 < time.monotonic() - begun < 5
for level, name, value in ((L, socket.SO_KEEPALIVE, 1), (L, socket.SO_REUSEADDR, 1), (T, socket.TCP_NODELAY, 1),
                           (T, socket.TCP_KEEPIDLE, 60), (T, socket.TCP_CORK, 0), (socket.IPPROTO_IP, socket.IP_TOS, 8)):
    s.setsockopt(level, name, value)
    assert s.getsockopt(level, name) == value, name
before = s.getsockopt(L, socket.SO_SNDBUF)
s.setsockopt(L, socket.SO_SNDBUF, 50_000)
assert s.getsockopt(L, socket.SO_SNDBUF) == 100_000 != before
assert s.getsockopt(T, socket.TCP_CONGESTION, 16).rstrip(b'\\0') == b'cubic'
fails(errno.ENOENT, s.setsockopt, T, socket.TCP_CONGESTION, b'nosuch')
fails(errno.ENOPROTOOPT, s.setsockopt, T, 200, 1)
fails(errno.EINVAL, s.setsockopt, T, socket.TCP_KEEPIDLE, 0)
echo(s)
",
    ),
    (
        "what is not done is not granted",
        "
L, I, T, U = socket.SOL_SOCKET, socket.IPPROTO_IP, socket.IPPROTO_TCP, 17
unknown = [(T, name) for name in (5, 6, 7, 8, 9, 12, 18, 23, 25)] + [(I, name) for name in (8, 11, 12, 13, 32, 35)]
unknown += [(L, name) for name in (6000, 12, 29, 35, 36, 37, 46)] + [(41, 67), (41, 49), (U, 103), (99, 1), (I, 999)]
s, l, u = connected(), listener(6010), socket.socket(type=socket.SOCK_DGRAM)
u.connect(ECHO)
b = socket.socket(type=socket.SOCK_DGRAM)
b.bind((ME, 6011))
for it in (s, l, u, b):
    for level, name in unknown:
        fails(errno.ENOPROTOOPT, it.setsockopt, level, name, 1)
        if (level, name) != (L, 12): fails(errno.ENOPROTOOPT, it.getsockopt, level, name)
    # No option is in the packets: what sshd asks.
    assert it.getsockopt(I, socket.IP_OPTIONS, 40) == b''
for it in (u, b):
    for name in (1, 3, 4): fails(errno.ENOPROTOOPT, it.getsockopt, T, name)
# Before it has an address, too: it may become a flow.
early = socket.socket(type=socket.SOCK_DGRAM)
for level, name in ((I, 8), (I, 12), (I, 13), (L, 29), (L, 35), (U, 103)):
    fails(errno.ENOPROTOOPT, early.setsockopt, level, name, 1)
    early.setsockopt(level, name, 0)
# What is sent in another way is not sent.
fails(errno.EINVAL, u.sendmsg, [b'x'], [(I, 8, bytes(12))])
fails(errno.EINVAL, b.sendmsg, [b'x'], [(U, 103, struct.pack('H', 1))], 0, ECHO)
fails(errno.EINVAL, u.setsockopt, I, socket.IP_TTL, 0)
fails(errno.EINVAL, u.setsockopt, I, socket.IP_TTL, 256)
",
    ),
    (
        "what is granted reads back, from the kernel's socket on",
        "
L, I, T = socket.SOL_SOCKET, socket.IPPROTO_IP, socket.IPPROTO_TCP
rows = [(L, socket.SO_KEEPALIVE, 0, 1), (L, socket.SO_REUSEPORT, 0, 1), (T, socket.TCP_NODELAY, 0, 1),
        (T, socket.TCP_KEEPIDLE, 7200, 70), (T, socket.TCP_CORK, 0, 1), (I, socket.IP_TOS, 0, 0x20), (I, socket.IP_TTL, 64, 9)]
early = socket.socket()
for level, name, usual, value in rows:
    assert early.getsockopt(level, name) == usual, name
    early.setsockopt(level, name, value)
early.connect(ECHO)
late = connected()
for level, name, usual, value in rows:
    assert late.getsockopt(level, name) == usual, name
    late.setsockopt(level, name, value)
l = socket.socket()
l.bind((ME, 6012))
for level, name, usual, value in rows: l.setsockopt(level, name, value)
l.listen()
far_connects(6012)
accepted = l.accept()[0]
for it in (early, late, l, accepted):
    for level, name, usual, value in rows: assert it.getsockopt(level, name) == value, (name, value)
late.setsockopt(I, socket.IP_TOS, 0x23)
assert late.getsockopt(I, socket.IP_TOS) == 0x20
late.setsockopt(I, socket.IP_TTL, -1)
assert late.getsockopt(I, socket.IP_TTL) == 64
u = socket.socket(type=socket.SOCK_DGRAM)
u.setsockopt(I, socket.IP_TOS, 0x23)
u.connect(ECHO)
assert u.getsockopt(I, socket.IP_TOS) == 0x23
u.setsockopt(I, socket.IP_TTL, 5)
u.connect(NOBODY)
assert (u.getsockopt(I, socket.IP_TOS), u.getsockopt(I, socket.IP_TTL)) == (0x23, 5)
",
    ),
    (
        "TCP_CORK holds an incomplete segment back",
        "
T = socket.IPPROTO_TCP
s = connected()
s.setsockopt(T, socket.TCP_NODELAY, 1)
s.setsockopt(T, socket.TCP_CORK, 1)
s.sendall(b'head')
s.settimeout(0.1)
try:
    s.recv(10)
    assert False, 'it did not wait'
except TimeoutError:
    pass
s.settimeout(None)
s.sendall(b'body')
s.setsockopt(T, socket.TCP_CORK, 0)
assert s.recv(8, socket.MSG_WAITALL) == b'headbody'
# Not for ever.
s.setsockopt(T, socket.TCP_CORK, 1)
s.sendall(b'x')
assert s.recv(1) == b'x'
s.sendall(b'y' * 3000)
s.shutdown(socket.SHUT_WR)
assert len(s.recv(3000, socket.MSG_WAITALL)) == 3000
",
    ),
    (
        "no connection and nothing to read",
        "
l, b = listener(6013), socket.socket()
b.bind((ME, 0))
for it in (l, b):
    for act in (lambda: it.recv(1), lambda: it.recvmsg(1), lambda: os.read(it.fileno(), 1), lambda: it.recvfrom(1)):
        fails(errno.ENOTCONN, act)
    fails(errno.EPIPE, it.sendmsg, [b'x'])
u = socket.socket(type=socket.SOCK_DGRAM)
u.bind((ME, 0))
for it in (connected(), l, b, u):
    fails(errno.EAGAIN, it.recvmsg, 10, 100, 0x2000)
    fails(errno.EAGAIN, it.recv, 10, 0x2000)
b.connect(ECHO)
echo(b)
",
    ),
    (
        "MSG_FASTOPEN",
        "
s = socket.socket()
assert s.sendto(b'fast', 0x20000000, ECHO) == 4
assert s.recv(4, socket.MSG_WAITALL) == b'fast'
assert s.getpeername() == ECHO
fails(errno.EISCONN, s.sendto, b'again', 0x20000000, ECHO)
s = socket.socket()
assert s.sendmsg([b'fa', b'st'], [], 0x20000000, ECHO) == 4
assert s.recv(4, socket.MSG_WAITALL) == b'fast'
fails(errno.ECONNREFUSED, socket.socket().sendto, b'x', 0x20000000, NOBODY)
s = socket.socket()
s.setblocking(False)
fails(errno.EINPROGRESS, s.sendto, b'x', 0x20000000, ECHO)
",
    ),
    (
        "a stopped program's connection lives",
        "
s = connected()
s.sendall(b'before')
if os.fork() == 0:
    me = os.getppid()
    os.kill(me, signal.SIGSTOP)
    time.sleep(1)
    os.kill(me, signal.SIGCONT)
    os._exit(0)
os.wait()
assert s.recv(6, socket.MSG_WAITALL) == b'before'
echo(s)
",
    ),
    (
        "close while another waits",
        "
s = connected()
said = []
t = threading.Thread(target=lambda: said.append(s.recv(10)))
t.start()
time.sleep(0.2)
# As with the kernel: the call goes on until something comes.
fd = s.detach()
os.write(fd, b'late')
os.close(fd)
t.join(5)
assert said in ([b'late'], [b'']), said
",
    ),
    (
        "UDP: ends, errors and peers",
        "
u = socket.socket(type=socket.SOCK_DGRAM)
u.settimeout(5)
for size in (0, 1, 1400):
    u.sendto(b'u' * size, ECHO)
    assert u.recvfrom(2000) == (b'u' * size, ECHO)
u.sendto(b'plain', ECHO)
assert u.recv(100) == b'plain'
fails(errno.EDESTADDRREQ, u.sendmsg, [b'x'])
u.sendto(b'pieces', ECHO)
data, _, flags, sender = u.recvmsg(3)
assert (data, flags & socket.MSG_TRUNC, sender) == (b'pie', socket.MSG_TRUNC, ECHO)
port = u.getsockname()[1]
u.connect(ECHO)
assert u.getsockname() == (ME, port) and u.getpeername() == ECHO
for size in (5, 0, 7):
    u.send(b'c' * size)
    assert u.recvfrom(100) == (b'c' * size, ECHO)
# AF_UNSPEC takes the peer away.
import ctypes
assert ctypes.CDLL(None, use_errno=True).connect(u.fileno(), bytes(16), 16) == 0
fails(errno.ENOTCONN, u.getpeername)
for peer in (NOBODY, ECHO, NOBODY): u.connect(peer)
assert ctypes.CDLL(None, use_errno=True).connect(u.fileno(), bytes(16), 16) == 0
u.sendto(b'again', ECHO)
assert u.recvfrom(100) == (b'again', ECHO)
u.connect(NOBODY)
u.send(b'x')
fails(errno.ECONNREFUSED, u.recv, 10)
u.setblocking(False)
fails(errno.EAGAIN, u.recv, 10)
u.send(b'x')
assert select.select([u], [], [], 5)[0]
assert u.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
fails(errno.EAGAIN, u.recv, 10)
",
    ),
    (
        "UDP: as many as the daemon has room for",
        "
many = []
try:
    for _ in range(400):
        u = socket.socket(type=socket.SOCK_DGRAM)
        u.connect(ECHO)
        many.append(u)
    assert False, 'there is no end'
except OSError as error:
    assert error.errno == errno.ENOBUFS, error
# Hosts of the programs before are clients, too, for a while.
assert len(many) > 150, len(many)
for u in (many[0], many[-1]):
    u.send(b'x')
    assert u.recv(10) == b'x'
many.clear()
u = socket.socket(type=socket.SOCK_DGRAM)
for _ in range(50):
    time.sleep(0.1)
    if u.connect_ex(ECHO) == 0: break
u.send(b'x')
assert u.recv(10) == b'x'
",
    ),
    (
        "UDP: binding, waiting and the kernel's",
        "
b = socket.socket(type=socket.SOCK_DGRAM)
b.bind(('0.0.0.0', 0))
assert b.getsockname()[0] == '0.0.0.0' and b.getsockname()[1] > 0
taken = socket.socket(type=socket.SOCK_DGRAM)
fails(errno.EADDRINUSE, taken.bind, (ME, b.getsockname()[1]))
e = select.epoll()
e.register(b, select.EPOLLIN)
b.connect(ECHO)
b.send(b'x')
assert e.poll(5), 'epoll forgot it'
assert b.recv(10) == b'x'
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(('127.0.0.1', 0))
c = socket.socket(type=socket.SOCK_DGRAM)
c.sendto(b'loop', s.getsockname())
data, sender = s.recvfrom(10)
assert data == b'loop' and sender == ('127.0.0.1', c.getsockname()[1])
# It stays the kernel's.
port = c.getsockname()[1]
try: c.sendto(b'x', ECHO)
except OSError: pass
assert c.getsockname()[1] == port
# Many in a row: what does not fit is dropped, and nothing hangs.
f = socket.socket(type=socket.SOCK_DGRAM)
f.connect(ECHO)
for _ in range(3000): f.send(b'f' * 1000)
f.settimeout(1)
count = 0
try:
    while count < 3000: f.recv(2000); count += 1
except TimeoutError:
    pass
assert count > 100, count
",
    ),
];

fn serve_far(net: &Net) {
    let (reset, was_reset) = channel();
    let was_reset = std::sync::Arc::new(std::sync::Mutex::new(was_reset));
    serve(net, "10.0.0.1:7001", move |mut stream| {
        let mut bytes = [0; 65536];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => match &bytes[..count] {
                    b"hang up" => return,
                    b"last?" => {
                        let heard = was_reset.lock().unwrap().recv_timeout(LONG).is_ok();
                        return stream.write_all(if heard { b"reset" } else { b"nothing" }).unwrap();
                    }
                    said => {
                        if said == b"reset?" {
                            // Discard the resets of earlier programs.
                            while was_reset.lock().unwrap().try_recv().is_ok() {}
                        }
                        // A program that has ended does not read this.
                        let _ = stream.write_all(said);
                    }
                },
                Err(_) => {
                    let _ = reset.send(());
                    return;
                }
            }
        }
    });
    let namespace = net.pair.far.namespace.clone();
    serve(net, "10.0.0.1:7003", move |mut stream| {
        let mut port = [0; 2];
        stream.read_exact(&mut port).unwrap();
        let to = ("10.0.0.2", u16::from_be_bytes(port));
        let mut stream = namespace.enter(|| std::net::TcpStream::connect(to)).unwrap().unwrap();
        let mut copy = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut copy);
    });
    let echo = net.pair.far.namespace.enter(|| UdpSocket::bind("10.0.0.1:7001")).unwrap().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 2000];
        while let Ok((count, from)) = echo.recv_from(&mut bytes) {
            let _ = echo.send_to(&bytes[..count], from);
        }
    });
}

#[test]
fn programs_find_what_they_know_of_sockets() {
    let Some(net) = with_program(&["python3"]) else { return };
    serve_far(&net);
    let failed: Vec<String> = PROGRAMS
        .iter()
        .filter_map(|(name, program)| {
            let output = run(&net, &["/usr/bin/python3", "-c", &format!("{BEGIN}{program}")]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (!output.status.success()).then(|| format!("{name}: {}\n{said}", output.status))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} fail:\n{}", failed.len(), PROGRAMS.len(), failed.join("\n"));
}

#[test]
fn type_of_service_and_time_to_live_are_those_that_the_program_sets() {
    let Some(net) = with_program(&["python3"]) else { return };
    serve_far(&net);
    let sniffer = "\
import socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
s.settimeout(20)
print('ready', flush=True)
seen = set()
while True:
    p = s.recv(2000)
    if p[12:16] != bytes([10, 0, 0, 2]) or p[9] not in (6, 17): continue
    what = 'udp' if p[9] == 17 else 'syn' if p[33] & 2 else 'data' if len(p) > 40 else ''
    row = f'{what} {p[1]:#x} {p[8]}'
    if what and row not in seen: print(row, flush=True)
    seen.add(row)
    if what == 'udp' and p[28:] == b'end': break
";
    let mut sniffer = far(&net, &["/usr/bin/python3", "-c", sniffer]);
    let mut said = BufReader::new(sniffer.0.as_mut().and_then(|child| child.stdout.take()).unwrap());
    said.read_line(&mut String::new()).unwrap();
    let program = "
I = socket.IPPROTO_IP
s = socket.socket()
s.setsockopt(I, socket.IP_TOS, 0x48)
s.setsockopt(I, socket.IP_TTL, 33)
s.connect(ECHO)
echo(s)
s.setsockopt(I, socket.IP_TOS, 0xb8)
echo(s)
u = socket.socket(type=socket.SOCK_DGRAM)
u.bind((ME, 0))
u.setsockopt(I, socket.IP_TOS, 0x21)
u.setsockopt(I, socket.IP_TTL, 7)
u.sendto(b'end', ECHO)
";
    done(&net, &["/usr/bin/python3", "-c", &format!("{BEGIN}{program}")]);
    let mut rows = String::new();
    said.read_to_string(&mut rows).unwrap();
    assert_eq!(rows, "syn 0x48 33\ndata 0x48 33\ndata 0xb8 33\nudp 0x21 7\n");
}

#[test]
fn a_python_server_answers_datagrams() {
    let Some(net) = with_program(&["python3"]) else { return };
    let program = "\
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(('0.0.0.0', 5300))
while True:
    said, peer = s.recvfrom(2000)
    s.sendto(said, peer)
    if said == b'end': break
";
    let server = Running::start(run(&net, &["/usr/bin/python3", "-c", program]));
    let socket = net.pair.far.namespace.enter(|| UdpSocket::bind("10.0.0.1:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    let mut bytes = [0; 2000];
    until("it answers", || {
        socket.send_to(b"there?", "10.0.0.2:5300").unwrap();
        socket.recv_from(&mut bytes).is_ok()
    });
    socket.set_read_timeout(Some(LONG)).unwrap();
    // Answers to earlier questions may still come.
    let mut ask = |said: &[u8]| {
        socket.send_to(said, "10.0.0.2:5300").unwrap();
        loop {
            let (count, from) = socket.recv_from(&mut bytes).unwrap();
            assert_eq!(from.to_string(), "10.0.0.2:5300");
            if &bytes[..count] == said {
                return;
            }
        }
    };
    (0..200).for_each(|size| ask(&vec![7; size * 7]));
    // It answers once more, and ends at once: the answer must still go out.
    ask(b"end");
    let output = server.end();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_a_program_does_not_read_is_dropped_and_counted() {
    let Some(net) = with_program(&["python3"]) else { return };
    let program = "\
import socket, sys
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(('10.0.0.2', 5301))
sys.stdin.read()
s.settimeout(1)
count = 0
try:
    while s.recvfrom(2000)[0]: count += 1
except TimeoutError:
    print(count)
";
    let mut command = run(&net, &["/usr/bin/python3", "-c", program]);
    let mut server = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let dropped = || {
        let output = crate::flows::command(&net, 0, &["flows", "--json"]).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let flow = document["flows"].as_array().unwrap().first().cloned()?;
        Some(flow["dropped"]["no empty buffer"].as_u64().unwrap_or(0))
    };
    until("it is bound", || dropped().is_some());
    let socket = net.pair.far.namespace.enter(|| UdpSocket::bind("10.0.0.1:0")).unwrap().unwrap();
    for _ in 0..3000 {
        socket.send_to(&[7; 1000], "10.0.0.2:5301").unwrap();
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    let lost = dropped().unwrap();
    drop(server.stdin.take());
    let output = server.wait_with_output().unwrap();
    let got: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!(lost > 0 && got > 100, "{got} came, {lost} were dropped");
    assert_eq!(got + lost, 3000);
}

#[test]
fn iperf3_sends_and_receives_datagrams() {
    let Some(net) = with_program(&["iperf3"]) else { return };
    let server = far(&net, &["iperf3", "-s", "-B", "10.0.0.1"]);
    until("the server listens", || {
        run(&net, &["iperf3", "-n", "1K", "-c", "10.0.0.1"]).output().unwrap().status.success()
    });
    for options in [&[][..], &["-R"]] {
        let mut words = vec!["iperf3", "-J", "-u", "-b", "20M", "-t", "1", "-c", "10.0.0.1"];
        words.extend(options);
        let result: Value = serde_json::from_slice(&done(&net, &words)).unwrap();
        let (sum, lost) = (&result["end"]["sum"], &result["end"]["sum"]["lost_percent"]);
        assert!(sum["bytes"].as_f64().unwrap_or(0.0) > 1e6, "{options:?}: {result}");
        assert!(lost.as_f64().unwrap_or(100.0) < 50.0, "{options:?}: {result}");
    }
    drop(server);
}

#[test]
fn wget_gets() {
    let Some(net) = with_program(&["wget"]) else { return };
    serve(&net, "10.0.0.1:8080", |mut stream| {
        let _ = stream.read(&mut [0; 2000]).unwrap();
        let body = vec![b'w'; 1 << 20];
        write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
        stream.write_all(&body).unwrap();
    });
    assert_eq!(done(&net, &["wget", "-q", "-O", "-", "http://10.0.0.1:8080/"]), vec![b'w'; 1 << 20]);
}
