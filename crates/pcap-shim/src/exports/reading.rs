//! Reads packets: with a callback, or one at a time.

use super::{export, lent};
use crate::abi::{Handler, PacketHeader, status};
use crate::handle::Handle;
use crate::live::Waited;
use std::ffi::c_int;

/// Hands over the present packets; with `count` > 0, at most that many. If there are none, waits as the handle's
/// settings say. Returns the number of packets, or a status.
fn dispatch(handle: &Handle, count: c_int, mut each: impl FnMut(&PacketHeader, *const u8)) -> c_int {
    let most = if count > 0 { count } else { c_int::MAX };
    let begun = handle.with(|inner| {
        let Some(live) = &mut inner.live else {
            return Err((status::NOT_ACTIVATED, "This handle hasn't been activated yet".to_string()));
        };
        live.start(&handle.meter).map_err(|text| (status::ERROR, text))?;
        Ok((inner.nonblocking, live.deadline()))
    });
    let (nonblocking, deadline) = match begun {
        Some(Ok(begun)) => begun,
        Some(Err((status, text))) => return handle.fail(status, text),
        None => return lent(handle),
    };
    let mut done = 0;
    let mut header = PacketHeader::default();
    loop {
        let waited = handle.with(|inner| {
            let live = inner.live.as_mut()?;
            let waited = match nonblocking {
                true if handle.stop.take() => Waited::Stopped,
                true => live.poll(),
                false => live.wait(deadline, &handle.stop),
            };
            Some((waited, live.limit()))
        });
        let Some(Some((waited, limit))) = waited else { return lent(handle) };
        match waited {
            Waited::Found => {}
            Waited::Stopped | Waited::Ended => return settled(handle, status::BREAK),
            Waited::TimeIsUp => return settled(handle, done),
            Waited::Gone => {
                let text = handle.with(|inner| inner.live.as_ref().map(|live| live.gone_text())).flatten();
                return handle.fail(status::ERROR, text.unwrap_or_default());
            }
        }
        while done < most {
            let next = handle.with(|inner| inner.live.as_mut()?.next(limit, &handle.meter, &mut header));
            let Some(Some(bytes)) = next else { break };
            each(&header, bytes);
            done += 1;
            if handle.stop.is_wanted() && handle.stop.take() {
                return settled(handle, status::BREAK);
            }
        }
        // The expression may have rejected all present packets: wait on.
        if done > 0 || nonblocking {
            return settled(handle, done);
        }
    }
}

/// Makes the descriptor for select() readable if packets are left. Returns `done`.
fn settled(handle: &Handle, done: c_int) -> c_int {
    handle.with(|inner| {
        if let Some(live) = &mut inner.live {
            live.settle();
        }
    });
    done
}

/// Calls a callback for each packet.
///
/// # Safety
///
/// `callback` may be called with `user` and a packet.
unsafe fn call_back(handle: &Handle, count: c_int, callback: Handler, user: *mut u8) -> c_int {
    let Some(callback) = callback else { return handle.fail(status::ERROR, "there is no callback") };
    // SAFETY: the caller guarantees the callback. The header is on this stack; the bytes stay in the handle's buffer
    // until the next packet is read. The handle is not lent during the callback.
    dispatch(handle, count, |header, bytes| unsafe { callback(user, header, bytes) })
}

export! {
    /// Hands over the present packets.
    fn pcap_dispatch(handle: handle, count: c_int, callback: Handler, user: *mut u8) -> c_int => |ours| {
        // SAFETY: the caller's callback.
        unsafe { call_back(ours, count, callback, user) }
    }
}

export! {
    /// Hands over `count` packets, or goes on until it is stopped.
    fn pcap_loop(handle: handle, count: c_int, callback: Handler, user: *mut u8) -> c_int => |ours| {
        let mut left = count;
        loop {
            // SAFETY: the caller's callback.
            let done = unsafe { call_back(ours, left, callback, user) };
            if done < 0 {
                break done;
            }
            if count > 0 {
                left -= done;
                if left <= 0 {
                    break 0;
                }
            }
        }
    }
}

export! {
    /// The next packet.
    fn pcap_next(handle: handle, header: *mut PacketHeader) -> *const u8 => |ours| {
        let mut packet = std::ptr::null();
        let done = dispatch(ours, 1, |found, bytes| {
            packet = bytes;
            // SAFETY: the caller passes a valid place.
            unsafe { header.write(*found) };
        });
        if done == 1 { packet } else { std::ptr::null() }
    }
}

export! {
    /// The next packet, or the reason why there is none.
    fn pcap_next_ex(handle: handle, header: *mut *mut PacketHeader, bytes: *mut *const u8) -> c_int => |ours| {
        let mut found = None;
        let done = dispatch(ours, 1, |header, bytes| found = Some((*header, bytes)));
        if let Some((about, packet)) = found {
            let kept = ours.with(|inner| {
                inner.header = about;
                &raw mut inner.header
            });
            let Some(kept) = kept else { return lent(ours) };
            // SAFETY: the caller passes two valid places. The packet and header stay until the next call.
            unsafe {
                header.write(kept);
                bytes.write(packet);
            }
        }
        // The packet was handed over, even if a stop came right after it. The next call reports the stop.
        if found.is_some() && done == status::BREAK {
            ours.stop.want();
            return 1;
        }
        done
    }
}
