//! Netlink: messages with attributes, requests, dumps, subscriptions. `link.rs`, `address.rs`, `route.rs` and
//! `change.rs` use it for `rtnetlink`.
//!
//! Every wait ends: a request without an answer for ten seconds is an error. Messages come from the kernel, but their
//! lengths are checked all the same.

use crate::sys::{Plain, bytes_of, check, read_plain, set_option, socket, wait};
use libc::{NLMSG_DONE, NLMSG_ERROR, nlmsghdr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(10);

/// Bytes of one reception: the kernel sends at most half of this at once.
const RECEIVE_BYTES: usize = 64 << 10;

/// How often a dump is started again because the state changed meanwhile.
const DUMP_ATTEMPTS: usize = 8;

const HEADER_BYTES: usize = size_of::<nlmsghdr>();
const ATTRIBUTE_HEADER_BYTES: usize = 4;

/// `linux/netlink.h`, NLMSGERR_ATTR_MSG: the kernel's text for an error.
const ERROR_WORDS: u16 = 1;

/// A message being written.
#[derive(Debug)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// A message of `kind` (`RTM_...`) with `flags` (`NLM_F_...`).
    pub fn new(kind: u16, flags: i32) -> Message {
        let header = nlmsghdr {
            nlmsg_len: 0,
            nlmsg_type: kind,
            nlmsg_flags: (flags | libc::NLM_F_REQUEST) as u16,
            nlmsg_seq: 0,
            nlmsg_pid: 0,
        };
        Message { bytes: bytes_of(&header).to_vec() }
    }

    pub(crate) fn put<T: Plain>(&mut self, value: &T) -> &mut Message {
        self.bytes.extend_from_slice(bytes_of(value));
        self.pad()
    }

    /// Adds an attribute.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Message {
        self.nest(kind, |message| {
            message.bytes.extend_from_slice(value);
        })
    }

    /// Adds a text attribute, with a zero at its end.
    pub fn text(&mut self, kind: u16, text: &str) -> &mut Message {
        self.nest(kind, |message| {
            message.bytes.extend_from_slice(text.as_bytes());
            message.bytes.push(0);
        })
    }

    /// Adds an attribute that contains what `inside` adds.
    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Message)) -> &mut Message {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        inside(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.pad()
    }

    fn pad(&mut self) -> &mut Message {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    fn sealed(&self, sequence: u32, more_flags: i32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let length = bytes.len() as u32;
        let flags = u16::from_ne_bytes([bytes[6], bytes[7]]) | more_flags as u16;
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        bytes
    }
}

/// The attributes in `bytes`, up to the first that does not fit.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *bytes.first_chunk::<ATTRIBUTE_HEADER_BYTES>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(ATTRIBUTE_HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        // The upper two bits are flags: nested, and byte order.
        Some((u16::from_ne_bytes([k0, k1]) & 0x3fff, value))
    })
}

/// The messages in `bytes`, as header and body, up to the first that does not fit.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (nlmsghdr, &[u8])> {
    std::iter::from_fn(move || {
        let header: nlmsghdr = read_plain(bytes)?;
        let length = header.nlmsg_len as usize;
        let body = bytes.get(HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((header, body))
    })
}

/// A netlink socket.
#[derive(Debug)]
pub struct Netlink {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// A socket to `rtnetlink` that receives messages of `groups` (`RTMGRP_...`).
    pub fn route(groups: u32) -> io::Result<Netlink> {
        Netlink::open(libc::NETLINK_ROUTE, groups)
    }

    /// A socket to the kernel's named families (`genetlink`).
    pub fn generic() -> io::Result<Netlink> {
        Netlink::open(libc::NETLINK_GENERIC, 0)
    }

    fn open(protocol: libc::c_int, groups: u32) -> io::Result<Netlink> {
        let fd = socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        // SAFETY: integers; zeroes are a value.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as u16;
        address.nl_groups = groups;
        let length = size_of::<libc::sockaddr_nl>() as u32;
        // SAFETY: an address of that many bytes.
        check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) })?;
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_GET_STRICT_CHK] {
            // Better error texts, if the kernel has them.
            let _ = set_option(fd.as_fd(), libc::SOL_NETLINK, option, &1);
        }
        Ok(Netlink { fd, sequence: 0, buffer: vec![0; RECEIVE_BYTES] })
    }

    /// Sends a request and waits until the kernel has done it.
    pub fn request(&mut self, message: &Message) -> io::Result<()> {
        self.send(message, libc::NLM_F_ACK)?;
        let sequence = self.sequence;
        loop {
            for (header, body) in messages(self.receive(ANSWER)?.ok_or_else(unanswered)?) {
                if header.nlmsg_seq == sequence && i32::from(header.nlmsg_type) == NLMSG_ERROR {
                    return outcome(header, body);
                }
            }
        }
    }

    /// Sends a request for one thing. `read` gets the answer's kind and body; `None`: it could not use the answer.
    pub(crate) fn get<T>(
        &mut self,
        message: &Message,
        read: impl Fn(u16, &[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.send(message, 0)?;
        let sequence = self.sequence;
        loop {
            for (header, body) in messages(self.receive(ANSWER)?.ok_or_else(unanswered)?) {
                if header.nlmsg_seq == sequence {
                    return match i32::from(header.nlmsg_type) {
                        NLMSG_ERROR => outcome(header, body).map(|()| None),
                        kind => Ok(read(kind as u16, body)),
                    };
                }
            }
        }
    }

    /// Sends a request for all things of one kind. `each` adds every answer, given its kind and body, to a value of
    /// `fresh`. Starts again if something changed meanwhile, so that the result is one state.
    pub fn dump<T>(
        &mut self,
        message: &Message,
        each: impl Fn(&mut T, u16, &[u8]),
        fresh: impl Fn() -> T,
    ) -> io::Result<T> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut found = fresh();
            if self.dump_once(message, |kind, body| each(&mut found, kind, body))? {
                return Ok(found);
            }
        }
        Err(io::Error::other("the list of devices changes faster than it can be read"))
    }

    /// Returns whether the answers are one consistent state.
    fn dump_once(&mut self, message: &Message, mut each: impl FnMut(u16, &[u8])) -> io::Result<bool> {
        self.send(message, libc::NLM_F_DUMP)?;
        let (sequence, mut consistent) = (self.sequence, true);
        loop {
            for (header, body) in messages(self.receive(ANSWER)?.ok_or_else(unanswered)?) {
                if header.nlmsg_seq != sequence {
                    continue;
                }
                consistent &= i32::from(header.nlmsg_flags) & libc::NLM_F_DUMP_INTR == 0;
                match i32::from(header.nlmsg_type) {
                    NLMSG_DONE => return Ok(consistent),
                    NLMSG_ERROR => return outcome(header, body).map(|()| consistent),
                    kind => each(kind as u16, body),
                }
            }
        }
    }

    /// Waits for messages of the subscribed groups; gives each one's kind and body to `each`. Says whether one came.
    ///
    /// The error `ENOBUFS` means that messages were lost for want of room.
    pub fn listen(&mut self, time: Duration, mut each: impl FnMut(u16, &[u8])) -> io::Result<bool> {
        let Some(bytes) = self.receive(time)? else { return Ok(false) };
        messages(bytes).for_each(|(header, body)| each(header.nlmsg_type, body));
        Ok(true)
    }

    fn send(&mut self, message: &Message, flags: i32) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let bytes = message.sealed(self.sequence, flags);
        // SAFETY: as many bytes as the vector has.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Receives once; `None` if there was nothing in time.
    fn receive(&mut self, time: Duration) -> io::Result<Option<&[u8]>> {
        if wait(self.fd.as_fd(), libc::POLLIN, time)? == 0 {
            return Ok(None);
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let room = self.buffer.len();
        // SAFETY: as many bytes as the buffer has.
        let received = unsafe { libc::recv(self.fd.as_raw_fd(), self.buffer.as_mut_ptr().cast(), room, flags) };
        match usize::try_from(received) {
            Ok(received) if received <= room => Ok(Some(&self.buffer[..received])),
            Ok(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is longer than any should be"))
            }
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn unanswered() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the kernel does not answer")
}

/// Decodes an acknowledgement: done, or the error, with the kernel's own text if it has one.
fn outcome(header: nlmsghdr, body: &[u8]) -> io::Result<()> {
    let code: i32 = read_plain(body).unwrap_or(-libc::EPROTO);
    if code == 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(code.saturating_neg());
    let asked = body.get(4..).and_then(read_plain::<nlmsghdr>);
    let capped = i32::from(header.nlmsg_flags) & libc::NLM_F_CAPPED != 0;
    let skip = 4 + if capped { HEADER_BYTES } else { asked.map_or(HEADER_BYTES, |asked| asked.nlmsg_len as usize) };
    let words = attributes(body.get(skip..).unwrap_or_default())
        .find(|(kind, _)| *kind == ERROR_WORDS)
        .map(|(_, text)| String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).into_owned());
    match words {
        Some(words) => Err(io::Error::new(error.kind(), format!("{error}: {words}"))),
        None => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_back_as_they_were_put() {
        let mut message = Message::new(16, 0);
        message.attribute(1, &[1, 2, 3]).text(2, "ab").nest(3, |inside| {
            inside.attribute(4, &[]);
        });
        let bytes = message.sealed(7, libc::NLM_F_ACK);
        let (header, body) = messages(&bytes).next().expect("one message");
        assert_eq!((header.nlmsg_seq, header.nlmsg_type, header.nlmsg_len as usize), (7, 16, bytes.len()));
        assert_eq!(i32::from(header.nlmsg_flags), libc::NLM_F_REQUEST | libc::NLM_F_ACK);
        let found: Vec<_> = attributes(body).collect();
        assert_eq!(found, [(1, &[1, 2, 3][..]), (2, b"ab\0"), (3, &[4, 0, 4, 0])]);
    }

    #[test]
    fn lengths_that_lie_end_the_list() {
        for bytes in [&[][..], &[3, 0, 1, 0], &[0, 0, 0, 0, 0], &[255, 255, 1, 0, 5], &[5, 0]] {
            assert_eq!(attributes(bytes).count(), 0, "{bytes:?}");
            assert_eq!(messages(bytes).count(), 0, "{bytes:?}");
        }
        // The first attribute is whole, the second is not.
        assert_eq!(attributes(&[4, 0, 1, 0, 9, 0, 1, 0]).count(), 1);
        let mut short = [0; 32];
        short[0] = 15;
        assert_eq!(messages(&short).count(), 0);
    }
}
