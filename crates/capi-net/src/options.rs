//! Options for opening a socket, besides its addresses.

use crate::address;
use libc::{sockaddr, socklen_t};
use socket::net::{Facts, OnChange, Options};
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Options for opening a socket. Fill it with zeros, then set the fields that should differ. A field's comment says
/// what 0 or NULL means.
#[repr(C)]
pub struct SlNetOptions {
    /// Path of the daemon's control socket. NULL: the one in the environment variable STREAMLINE_DAEMON, or the usual one.
    pub daemon: *const c_char,
    /// The interface. NULL: the one that routes to the peer, or the only one.
    pub device: *const c_char,
    /// The share of the wire, for example "4ms/100ms". NULL: an equal part of the rest.
    pub share: *const c_char,
    /// The blocks of the stack below `tcp` or `udp`. NULL: `ipv4 | ethernet DEVICE`.
    pub stack: *const c_char,
    /// For `sl_net_connect`: address and port of this side; port 0: any free one. NULL: the interface's address, any
    /// port.
    pub local: *const sockaddr,
    /// Length of `local`.
    pub local_length: socklen_t,
    /// For `sl_net_listen`: connections that may wait, 1024 at most. 0: 128.
    pub backlog: u32,
    /// Bytes of the receive buffer of a connection. 0: 256 KiB.
    pub receive_bytes: u32,
    /// Bytes of the send buffer of a connection. 0: 256 KiB.
    pub send_bytes: u32,
    /// For `sl_net_connect`: how long the handshake may take, in milliseconds. 0: a minute.
    pub connect_timeout_ms: u32,
    /// Called with `context` when the facts about the socket's interface change; for a listener, those of the
    /// connections that it accepts. A thread of the library makes the call, perhaps several at once. The function must
    /// neither wait nor use the socket. NULL: no call.
    pub on_change: Option<extern "C" fn(context: *mut c_void, facts: *const SlNetFacts)>,
    /// The argument of `on_change`.
    pub context: *mut c_void,
    /// Not 0: calls do not wait, as after `sl_net_set_nonblocking`, and `sl_net_connect` does not wait for the
    /// handshake.
    pub nonblocking: i32,
}

/// Facts about a socket's interface and address.
#[repr(C)]
pub struct SlNetFacts {
    /// Hardware address of the interface.
    pub mac: [u8; 6],
    /// Length of the prefix of the socket's address, bits.
    pub prefix: u8,
    /// 1: the interface has the socket's address. 0: no packets travel until the address is back.
    pub has_address: u8,
    /// Bytes of the longest IP packet.
    pub mtu: u32,
}

impl SlNetFacts {
    pub(crate) fn of(facts: Facts) -> SlNetFacts {
        let Facts { mac, prefix, mtu, has_address, .. } = facts;
        SlNetFacts { mac, prefix, has_address: has_address.into(), mtu }
    }
}

/// A pointer that only C follows.
struct Context(*mut c_void);

impl Context {
    fn give(&self, call: extern "C" fn(*mut c_void, *const SlNetFacts), facts: &SlNetFacts) {
        call(self.0, facts);
    }
}

// SAFETY: the header says that a thread of the library calls with it; this code does not follow it.
unsafe impl Send for Context {}
// SAFETY: as above. Calls of several connections may come at once, which `SlNetOptions::on_change` says.
unsafe impl Sync for Context {}

impl SlNetOptions {
    /// Converts the options for [`socket::net`].
    ///
    /// # Safety
    ///
    /// Each text is null or ends with a zero byte; `local` is null or readable for `local_length` bytes.
    pub(crate) unsafe fn read(&self) -> io::Result<Options> {
        let defaults = Options::default();
        let local = match self.local.is_null() {
            true => None,
            // SAFETY: the caller's word.
            false => Some(unsafe { address::read(self.local, self.local_length) }?),
        };
        // SAFETY: the caller's word.
        let (daemon, [device, share, stack]) =
            unsafe { (bytes(self.daemon), [text(self.device)?, text(self.share)?, text(self.stack)?]) };
        Ok(Options {
            daemon: daemon.map_or(defaults.daemon, |path| OsStr::from_bytes(path).into()),
            device,
            local,
            share,
            stack,
            backlog: if self.backlog == 0 { defaults.backlog } else { self.backlog },
            receive_bytes: self.receive_bytes,
            send_bytes: self.send_bytes,
            marks: defaults.marks,
            connect_timeout: milliseconds(self.connect_timeout_ms),
            on_change: self.on_change.map(|call| {
                let context = Context(self.context);
                OnChange::new(move |change| context.give(call, &SlNetFacts::of(change.facts)))
            }),
        })
    }
}

/// A time; `None` for 0.
pub(crate) fn milliseconds(ms: u32) -> Option<Duration> {
    (ms != 0).then(|| Duration::from_millis(ms.into()))
}

/// # Safety
///
/// Null, or a text that ends with a zero byte.
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: not null, and the caller's word for the rest.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// # Safety
///
/// As for [`bytes`].
unsafe fn text(text: *const c_char) -> io::Result<Option<String>> {
    // SAFETY: the caller's word.
    let Some(bytes) = (unsafe { bytes(text) }) else { return Ok(None) };
    let text = String::from_utf8(bytes.to_vec());
    text.map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an option is no text in UTF-8"))
}
