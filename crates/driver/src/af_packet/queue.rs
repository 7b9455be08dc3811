//! Receives from a packet socket without a ring: up to 64 frames a system call (`recvmmsg`), as soon as they come.
//!
//! A ring's block is handed over when it is full or its time is over, which is a millisecond at least. Here the kernel
//! keeps frames in the socket's queue until they are asked for. That costs a system call for each batch, and a copy of
//! each frame by the caller's thread.
//!
//! The kernel's data are trusted, but every length is checked.

use super::block::{OFFLOAD_HEADER_BYTES, Shape, Tag, complete};
use crate::frame::{Frame, PACKET_OUTGOING};
use crate::sys::{check, set_option};
use base::limits::BATCH_BLOCKS;
use buffer::live::SlotFlags;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Most bytes of one frame: a super-frame of 64 KiB with its link header. A longer one is cut.
const SLOT_BYTES: usize = 66 << 10;

/// Room for the kernel's facts about a frame: two messages, each after a header of 16 bytes.
const CONTROL_BYTES: usize = 96;
const CONTROL_HEADER_BYTES: usize = 16;

/// `struct sockaddr_ll`, and the offset of the packet type in it.
const ADDRESS_BYTES: usize = 20;
const PACKET_TYPE: usize = 10;

/// The kernel's facts about a frame, aligned as it wants them.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
struct Control([u8; CONTROL_BYTES]);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Bytes before it was cut.
    len: usize,
    control_bytes: usize,
}

/// Room for 64 frames, and the frames of the last call.
#[derive(Debug)]
pub(super) struct Queue {
    bytes: Vec<u8>,
    offloads: [[u8; OFFLOAD_HEADER_BYTES]; BATCH_BLOCKS],
    addresses: [[u8; ADDRESS_BYTES]; BATCH_BLOCKS],
    controls: [Control; BATCH_BLOCKS],
    known: [Known; BATCH_BLOCKS],
}

impl Queue {
    /// Makes the kernel keep `queue_bytes` of frames, and add to each its time and the tag beside it.
    pub(super) fn new(fd: BorrowedFd<'_>, queue_bytes: usize) -> io::Result<Queue> {
        let wanted = i32::try_from(queue_bytes).unwrap_or(i32::MAX);
        // Beyond the host's limit if that is permitted.
        set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &wanted)
            .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &wanted))?;
        set_option(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1)?;
        Ok(Queue {
            bytes: vec![0; SLOT_BYTES * BATCH_BLOCKS],
            offloads: [[0; OFFLOAD_HEADER_BYTES]; BATCH_BLOCKS],
            addresses: [[0; ADDRESS_BYTES]; BATCH_BLOCKS],
            controls: [Control([0; CONTROL_BYTES]); BATCH_BLOCKS],
            known: [Known::default(); BATCH_BLOCKS],
        })
    }

    /// Receives frames; an error of kind "would block" if there are none. Makes a system call.
    pub(super) fn receive(&mut self, fd: BorrowedFd<'_>, shape: Shape) -> io::Result<usize> {
        let mut pieces = [const { MaybeUninit::<[libc::iovec; 2]>::uninit() }; BATCH_BLOCKS];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_BLOCKS];
        let before = if shape.offloads { OFFLOAD_HEADER_BYTES } else { 0 };
        let beside = self.offloads.iter_mut().zip(&mut self.addresses).zip(&mut self.controls);
        let slots = self.bytes.chunks_exact_mut(SLOT_BYTES).zip(beside);
        for (((slot, ((offloads, address), control)), piece), message) in slots.zip(&mut pieces).zip(&mut messages) {
            let piece = piece.write([
                libc::iovec { iov_base: offloads.as_mut_ptr().cast(), iov_len: before },
                libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: SLOT_BYTES },
            ]);
            // SAFETY: integers and pointers; zeroes are a value.
            let message = message.write(unsafe { std::mem::zeroed() });
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (piece.as_mut_ptr(), piece.len() as _);
            message.msg_hdr.msg_name = address.as_mut_ptr().cast();
            message.msg_hdr.msg_namelen = ADDRESS_BYTES as u32;
            message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL_BYTES as _;
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let (fd, count) = (fd.as_raw_fd(), BATCH_BLOCKS as u32);
        // SAFETY: all messages were written. Each names an array of two pieces (the bytes before a frame, and its
        // slot), and room for an address and for control messages. These live for the call, are not used elsewhere, and
        // have the stated lengths.
        let count = check(unsafe {
            libc::recvmmsg(fd, messages.as_mut_ptr().cast(), count, flags as _, std::ptr::null_mut())
        })?;
        let count = (count as usize).min(BATCH_BLOCKS);
        for (message, known) in messages[..count].iter().zip(&mut self.known) {
            // SAFETY: written above.
            let message = unsafe { message.assume_init_ref() };
            *known = Known {
                len: (message.msg_len as usize).saturating_sub(before),
                control_bytes: message.msg_hdr.msg_controllen.min(CONTROL_BYTES),
            };
        }
        Ok(count)
    }

    #[inline]
    pub(super) fn frame(&self, index: usize, shape: Shape, interface: u32) -> Frame<'_> {
        let Known { len, control_bytes } = self.known[index];
        let slot = &self.bytes[index * SLOT_BYTES..][..SLOT_BYTES];
        let mut frame = Frame::new(&slot[..len.min(SLOT_BYTES)]);
        frame.wire = len as u32;
        frame.interface = interface;
        let packet_type = self.addresses[index][PACKET_TYPE];
        frame.flags = SlotFlags::default().with_packet_type(packet_type);
        if packet_type == PACKET_OUTGOING {
            frame.flags = frame.flags.with(SlotFlags::OUTBOUND);
        }
        let mut tag = Tag::default();
        describe(&self.controls[index].0[..control_bytes], &mut frame, &mut tag);
        complete(frame, shape, tag, shape.offloads.then_some(&self.offloads[index]))
    }
}

/// Reads the control messages of a frame (`struct cmsghdr`, cmsg(3)).
#[inline]
fn describe(mut messages: &[u8], frame: &mut Frame<'_>, tag: &mut Tag) {
    while let Some((header, rest)) = messages.split_first_chunk::<CONTROL_HEADER_BYTES>() {
        let word = |at: usize| i32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        // The length is a `size_t` and includes the header.
        let length = header.first_chunk().map_or(0, |length| usize::from_ne_bytes(*length));
        let Some(len) = length.checked_sub(CONTROL_HEADER_BYTES).filter(|len| *len <= rest.len()) else { return };
        let body = &rest[..len];
        match (word(8), word(12)) {
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => describe_packet(body, frame, tag),
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                if let Some((seconds, nanoseconds)) =
                    body.first_chunk::<8>().zip(body.get(8..).and_then(<[u8]>::first_chunk))
                {
                    let [seconds, nanoseconds] = [*seconds, *nanoseconds].map(u64::from_ne_bytes);
                    frame.time = seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds);
                }
            }
            _ => {}
        }
        messages = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
    }
}

/// `struct tpacket_auxdata`: status, length, captured; two offsets, tag and its protocol.
fn describe_packet(body: &[u8], frame: &mut Frame<'_>, tag: &mut Tag) {
    let Some(body) = body.first_chunk::<20>() else { return };
    let word = |at: usize| u32::from_ne_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    let half = |at: usize| u16::from_ne_bytes([body[at], body[at + 1]]);
    frame.wire = frame.wire.max(word(4));
    *tag = Tag { status: word(0), value: half(16), protocol: half(18) };
    if tag.status & libc::TP_STATUS_CSUMNOTREADY != 0 {
        frame.flags = frame.flags.with(SlotFlags::CHECKSUM_OPEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((CONTROL_HEADER_BYTES + body.len()) as u64).to_ne_bytes().to_vec();
        bytes.extend([level.to_ne_bytes(), kind.to_ne_bytes()].concat());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn what_the_kernel_says_of_a_frame_is_read_however_it_is_cut() {
        let mut packet = [0; 20];
        packet[..4].copy_from_slice(&(libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_CSUMNOTREADY).to_ne_bytes());
        packet[4..8].copy_from_slice(&100_u32.to_ne_bytes());
        packet[16..18].copy_from_slice(&5_u16.to_ne_bytes());
        let time = [3_u64.to_ne_bytes(), 7_u64.to_ne_bytes()].concat();
        let packet = message(libc::SOL_PACKET, libc::PACKET_AUXDATA, &packet);
        let all = [message(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &time), message(9, 9, &[1]), packet].concat();
        for cut in 0..=all.len() {
            let (mut frame, mut tag) = (Frame::new(&[0; 60]), Tag::default());
            describe(&all[..cut], &mut frame, &mut tag);
            let has_time = cut >= 32;
            assert_eq!(frame.time, if has_time { 3_000_000_007 } else { 0 }, "{cut}");
            let is_whole = cut + 4 >= all.len();
            assert_eq!((frame.wire, tag.value), if is_whole { (100, 5) } else { (60, 0) }, "{cut}");
            assert_eq!(frame.flags.has(SlotFlags::CHECKSUM_OPEN), is_whole);
        }
        let (mut frame, mut tag) = (Frame::new(&[]), Tag::default());
        describe(&[0; 64], &mut frame, &mut tag);
        describe(&[0xff; 64], &mut frame, &mut tag);
        assert_eq!((frame.time, tag.status), (0, 0));
    }
}
