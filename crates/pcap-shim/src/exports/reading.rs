//! Packets: to a callback, or one at a time.

use super::{export, lent};
use crate::abi::{Handler, PacketHeader, status};
use crate::handle::Handle;
use crate::live::Waited;
use std::ffi::c_int;

/// Hands over what is there, at most `count` packets if that is more than 0; if nothing is, waits as long as the handle's
/// settings say. How many were handed over, or a status.
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
        // What was there may have been nothing this handle wants after all: then it goes on waiting.
        if done > 0 || nonblocking {
            return settled(handle, done);
        }
    }
}

/// The file descriptor that the program selects on says whether there is more; gives `done`.
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
    // SAFETY: by the caller's word. The header is on this stack, the bytes stay in the handle's buffer until the next
    // packet is asked for; nothing of the handle is lent.
    dispatch(handle, count, |header, bytes| unsafe { callback(user, header, bytes) })
}

export! {
    /// Hands over what is there.
    fn pcap_dispatch(handle: handle, count: c_int, callback: Handler, user: *mut u8) -> c_int => |ours| {
        // SAFETY: the caller's callback.
        unsafe { call_back(ours, count, callback, user) }
    }
}

export! {
    /// Hands over so many packets, or goes on until it is stopped.
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
            // SAFETY: the caller's place for a header.
            unsafe { header.write(*found) };
        });
        if done == 1 { packet } else { std::ptr::null() }
    }
}

export! {
    /// The next packet, or why there is none.
    fn pcap_next_ex(handle: handle, header: *mut *mut PacketHeader, bytes: *mut *const u8) -> c_int => |ours| {
        let mut found = None;
        let done = dispatch(ours, 1, |header, bytes| found = Some((*header, bytes)));
        if let Some((about, packet)) = found {
            let kept = ours.with(|inner| {
                inner.header = about;
                &raw mut inner.header
            });
            let Some(kept) = kept else { return lent(ours) };
            // SAFETY: the caller's places for two pointers. What they point to stays until the next call.
            unsafe {
                header.write(kept);
                bytes.write(packet);
            }
        }
        // A packet was handed over even if it was told to stop right afterwards: that is for the next call to say.
        if found.is_some() && done == status::BREAK {
            ours.stop.want();
            return 1;
        }
        done
    }
}
