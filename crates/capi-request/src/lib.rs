//! Requests for C: `libstreamline_request.so` and `include/streamline_request.h`, which is generated from this crate.
//!
//! This library is separate from that of `capi`, so that programs with rings only load no filters. Each function checks
//! its pointers, calls [`streamline::Stream`], and keeps an error's text. A panic does not cross into C: it becomes an
//! error, and ends the request.
//!
//! Only one thread at a time may use a handle. The results of `sl_request_next`, and of functions about its block, are
//! valid until the next call of `sl_request_next`, `sl_request_push` or `sl_request_close` for that handle.

use base::{c_face, fault};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::net::IpAddr;
use streamline::{Block, Error, FieldValue, Flags, Push, Session, Stream, Type};

/// Of a block: a frame of the link layer.
pub const SL_TYPE_FRAME: u32 = 1;
/// Of a block: a network-layer packet.
pub const SL_TYPE_PACKET: u32 = 2;
/// Of a block: a piece of a byte stream.
pub const SL_TYPE_BYTES: u32 = 3;
/// Of a block: a piece of a message.
pub const SL_TYPE_MESSAGE: u32 = 4;
/// Of a block: a record.
pub const SL_TYPE_RECORD: u32 = 5;

/// Of a block: the first of its stream or message.
pub const SL_BLOCK_FIRST: u32 = 1;
/// Of a block: the last of its stream or message.
pub const SL_BLOCK_LAST: u32 = 2;
/// Of a block: the end of its stream or message is missing.
pub const SL_BLOCK_CUT: u32 = 4;
/// Of a block: it holds a record, for `sl_request_text`, `sl_request_number` and `sl_request_json`.
pub const SL_BLOCK_RECORD: u32 = 8;
/// Of a block: it comes from the server of its stream. Only if `ip_version` is not 0.
pub const SL_BLOCK_SERVER: u32 = 16;

/// For `sl_request_push`: the block comes from the server of its stream, not from the client. Not for frames.
pub const SL_PUSH_SERVER: u32 = 1;
/// For `sl_request_push`: more of the same message follows. For messages only.
pub const SL_PUSH_MORE: u32 = 2;
/// For `sl_request_push`: the stream ends behind this block. For byte streams only.
pub const SL_PUSH_LAST: u32 = 4;
/// For `sl_request_push`: this call is the last push; without bytes it only says so.
pub const SL_PUSH_END: u32 = 8;

/// A request.
pub struct SlRequest {
    /// `None` after a request that could not be opened, or after a panic.
    stream: Option<Stream>,
    /// The last error.
    error: CString,
    /// The record that `sl_request_json` wrote last.
    text: CString,
}

/// A block that came out of a request.
#[repr(C)]
pub struct SlRequestBlock {
    /// The bytes, in place.
    pub bytes: *const c_void,
    /// The number of bytes.
    pub len: u64,
    /// When the block was seen: nanoseconds since 1970 UTC.
    pub time: u64,
    /// Its type: SL_TYPE_FRAME and so on.
    pub kind: u32,
    /// Its flags: SL_BLOCK_FIRST and so on.
    pub flags: u32,
    /// Its class: pieces of one stream or message have the same.
    pub block_class: u32,
    /// The open end that it came out of, counted from 0.
    pub end: u32,
    /// Its length on the wire.
    pub wire: u32,
    /// Bytes that are missing before it, in a stream or message.
    pub missing: u32,
    /// Link type of a frame or packet; 0 for others.
    pub link_type: u32,
    /// 4 or 6. 0: its stream is not known, and the fields below have no meaning.
    pub ip_version: u32,
    /// Protocol number of the stream: 6 for TCP, 17 for UDP.
    pub protocol: u32,
    /// Port of the client.
    pub client_port: u16,
    /// Port of the server.
    pub server_port: u16,
    /// Address of the client, in network order; the first 4 bytes for version 4.
    pub client: [u8; 16],
    /// Address of the server.
    pub server: [u8; 16],
}

impl SlRequest {
    fn failed(&mut self, text: String) -> i32 {
        self.error = c_face::text(text);
        -1
    }
}

/// An error for people; for a wrong request it shows the place in the text.
fn say(error: &Error, source: &str) -> String {
    match error {
        Error::Request(diagnostic) => diagnostic.render(source, "request").trim_end().to_string(),
        other => other.to_string(),
    }
}

/// Runs the work of a C function for a request. A panic is a fault of ours, and ends the request.
///
/// # Safety
///
/// `request` is null, or from `sl_request_open` and not closed, and no other thread uses it meanwhile.
unsafe fn guarded(request: *mut SlRequest, work: impl FnOnce(&mut SlRequest) -> Result<i32, String>) -> i32 {
    // SAFETY: the caller's word.
    let Some(request) = (unsafe { request.as_mut() }) else { return -1 };
    match fault::contained("a function of libstreamline_request", || work(request)) {
        Some(Ok(value)) => value,
        Some(Err(text)) => request.failed(text),
        None => {
            // The panic may have come from within a turn: the request does not run again.
            std::mem::forget(request.stream.take());
            request.failed(c_face::FAULT.into())
        }
    }
}

impl SlRequest {
    fn stream(&mut self) -> Result<&mut Stream, String> {
        let error = &self.error;
        self.stream.as_mut().ok_or_else(|| error.to_string_lossy().into_owned())
    }

    fn block(&mut self) -> Result<Block<'_>, String> {
        self.stream()?.current().ok_or_else(|| "there is no block: call sl_request_next before".into())
    }
}

fn shown(block: &Block<'_>) -> SlRequestBlock {
    let mut shown = SlRequestBlock {
        bytes: block.bytes().as_ptr().cast(),
        len: block.bytes().len() as u64,
        time: block.time(),
        kind: match block.kind() {
            Type::Frame => SL_TYPE_FRAME,
            Type::Packet => SL_TYPE_PACKET,
            Type::Bytes => SL_TYPE_BYTES,
            Type::Message => SL_TYPE_MESSAGE,
            Type::Record => SL_TYPE_RECORD,
        },
        flags: 0,
        block_class: block.class().0,
        end: block.end() as u32,
        wire: block.wire(),
        missing: block.missing_before(),
        link_type: block.link_type().map_or(0, u32::from),
        ip_version: 0,
        protocol: 0,
        client_port: 0,
        server_port: 0,
        client: [0; 16],
        server: [0; 16],
    };
    let flags = [
        (block.flags().has(Flags::FIRST), SL_BLOCK_FIRST),
        (block.flags().has(Flags::LAST), SL_BLOCK_LAST),
        (block.is_cut(), SL_BLOCK_CUT),
        (block.is_record(), SL_BLOCK_RECORD),
        (block.facts().is_some() && block.class().direction() == 1, SL_BLOCK_SERVER),
    ];
    shown.flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
    if let Some(facts) = block.facts() {
        let flow = &facts.flow;
        let is_v4 = flow.source.is_ipv4() && flow.target.is_ipv4();
        let octets = |address: IpAddr| match address {
            IpAddr::V4(four) if is_v4 => {
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&four.octets());
                octets
            }
            IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
            IpAddr::V6(six) => six.octets(),
        };
        shown.ip_version = if is_v4 { 4 } else { 6 };
        shown.protocol = u32::from(flow.protocol);
        (shown.client, shown.server) = (octets(flow.source), octets(flow.target));
        (shown.client_port, shown.server_port) = (flow.source_port, flow.target_port);
    }
    shown
}

/// Opens a request: it opens all it needs, or leaves all closed. 0, or -1; then `sl_request_error` says why. Close the
/// handle in both cases; it is NULL if `text` is NULL.
///
/// # Safety
///
/// `text` ends with a zero byte; `request` has room for the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_open(text: *const c_char, request: *mut *mut SlRequest) -> i32 {
    // SAFETY: the caller's word.
    unsafe { sl_request_open_with(text, std::ptr::null(), request) }
}

/// As `sl_request_open`, with variables: names and values in turn, and NULL after the last. `$name` in the request
/// stands for its value, taken literally. NULL: no variables.
///
/// # Safety
///
/// As for `sl_request_open`; all of `variables` end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_open_with(
    text: *const c_char,
    variables: *const *const c_char,
    request: *mut *mut SlRequest,
) -> i32 {
    if request.is_null() {
        return -1;
    }
    // SAFETY: not null, and the caller's word.
    unsafe { request.write(std::ptr::null_mut()) };
    if text.is_null() {
        return -1;
    }
    let handle = Box::new(SlRequest { stream: None, error: CString::default(), text: CString::default() });
    let handle = Box::into_raw(handle);
    // SAFETY: as above.
    unsafe { request.write(handle) };
    // SAFETY: the handle was made just now.
    unsafe {
        guarded(handle, |handle| {
            // The text is not null; the rest is the caller's word.
            let source = text_of(text)?;
            let variables = variables_of(variables)?;
            let opened = Session::new().stream(source, &variables);
            handle.stream = Some(opened.map_err(|error| say(&error, source))?);
            Ok(0)
        })
    }
}

/// # Safety
///
/// Not null; ends with a zero byte.
unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str, String> {
    // SAFETY: the caller's word.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| "a text of the program is not UTF-8".into())
}

/// # Safety
///
/// As for `variables` of [`sl_request_open_with`].
unsafe fn variables_of(mut variables: *const *const c_char) -> Result<BTreeMap<String, String>, String> {
    let mut known = BTreeMap::new();
    if variables.is_null() {
        return Ok(known);
    }
    loop {
        // SAFETY: the caller's word: a null comes after the last, and both of a pair are there.
        let name = unsafe { *variables };
        if name.is_null() {
            return Ok(known);
        }
        // SAFETY: as above.
        let value = unsafe { *variables.add(1) };
        if value.is_null() {
            return Err("a variable has a name and no value".into());
        }
        // SAFETY: neither is null.
        let (name, value) = unsafe { (text_of(name)?, text_of(value)?) };
        known.insert(name.to_string(), value.to_string());
        // SAFETY: as above.
        variables = unsafe { variables.add(2) };
    }
}

/// The next block of the request. 1; 0 at the end, or until the program pushes more; or -1. An error of the request
/// comes after its blocks, and again at each further call.
///
/// # Safety
///
/// `request` is from `sl_request_open`; `block` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_next(request: *mut SlRequest, block: *mut SlRequestBlock) -> i32 {
    let next = |request: &mut SlRequest| {
        if block.is_null() {
            return Err("the place for the block is NULL".into());
        }
        let Some(next) = request.stream()?.next().map_err(|error| error.to_string())? else { return Ok(0) };
        // SAFETY: not null, and the caller's word.
        unsafe { block.write(shown(&next)) };
        Ok(1)
    };
    // SAFETY: the caller's word.
    unsafe { guarded(request, next) }
}

/// Pushes a block into a request that begins with `push_frames`, `push_bytes` or `push_messages`. Copies its bytes. 0,
/// or -1. The call takes back the block from `sl_request_next`.
///
/// # Safety
///
/// `request` is from `sl_request_open`; `bytes` has `len` bytes, and may be NULL if `len` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_push(request: *mut SlRequest, bytes: *const c_void, len: usize, flags: u32) -> i32 {
    let push = |request: &mut SlRequest| {
        if flags >= SL_PUSH_END * 2 {
            return Err(format!("no flag of sl_request_push has the value {flags}"));
        }
        if (bytes.is_null() && len > 0) || len > isize::MAX as usize {
            return Err("the bytes are NULL, or too many".into());
        }
        let has = |flag| flags & flag != 0;
        let ends = has(SL_PUSH_END);
        let stream = request.stream()?;
        if len > 0 || !ends {
            // SAFETY: not null, and the caller's word.
            let bytes = if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), len) } };
            let about =
                Push { time: None, from_server: has(SL_PUSH_SERVER), more: has(SL_PUSH_MORE), last: has(SL_PUSH_LAST) };
            stream.push_with(bytes, about).map_err(|error| error.to_string())?;
        }
        if ends {
            stream.end().map_err(|error| error.to_string())?;
        }
        Ok(0)
    };
    // SAFETY: the caller's word.
    unsafe { guarded(request, push) }
}

/// Finds a text in the record of the last block from `sl_request_next`. 1; 0 if the record has no such text; -1 if the
/// block holds no record. Writes a pointer to the text to `text`, and its length to `len`; no zero byte follows it.
///
/// # Safety
///
/// `request` is from `sl_request_open`; `name` ends with a zero byte; `text` and `len` have room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_text(
    request: *mut SlRequest,
    name: *const c_char,
    text: *mut *const c_char,
    len: *mut usize,
) -> i32 {
    let find = |request: &mut SlRequest| {
        if name.is_null() || text.is_null() || len.is_null() {
            return Err("a pointer is NULL".into());
        }
        // SAFETY: not null, and the caller's word.
        let name = unsafe { text_of(name) }?;
        let record = request.block()?.record().ok_or("the block holds no record")?;
        let Some(found) = record.text(name) else { return Ok(0) };
        // SAFETY: not null, and the caller's word.
        unsafe {
            text.write(found.as_ptr().cast());
            len.write(found.len());
        }
        Ok(1)
    };
    // SAFETY: the caller's word.
    unsafe { guarded(request, find) }
}

/// As `sl_request_text`, for a number, a time (nanoseconds since 1970 UTC), a duration (in the unit that JSON shows, or
/// nanoseconds where that is seconds with a fraction) or a flag (0 or 1).
///
/// # Safety
///
/// `request` is from `sl_request_open`; `name` ends with a zero byte; `number` has room for the answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_number(request: *mut SlRequest, name: *const c_char, number: *mut u64) -> i32 {
    let find = |request: &mut SlRequest| {
        if name.is_null() || number.is_null() {
            return Err("a pointer is NULL".into());
        }
        // SAFETY: not null, and the caller's word.
        let name = unsafe { text_of(name) }?;
        let record = request.block()?.record().ok_or("the block holds no record")?;
        let found = match record.named(name) {
            Some(FieldValue::Number(value) | FieldValue::Time(value) | FieldValue::Duration(value, _)) => value,
            Some(FieldValue::Flag(value)) => u64::from(value),
            _ => return Ok(0),
        };
        // SAFETY: not null, and the caller's word.
        unsafe { number.write(found) };
        Ok(1)
    };
    // SAFETY: the caller's word.
    unsafe { guarded(request, find) }
}

/// The record of the last block from `sl_request_next`, as one JSON object that ends with a zero byte. NULL: the block
/// holds no record.
///
/// # Safety
///
/// `request` is NULL or from `sl_request_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_json(request: *mut SlRequest) -> *const c_char {
    let write = |request: &mut SlRequest| {
        let json = request.block()?.json().ok_or("the block holds no record")?;
        request.text = c_face::text(json);
        Ok(1)
    };
    // SAFETY: the caller's word.
    match unsafe { guarded(request, write) } {
        // SAFETY: a call that went well had a handle.
        1 => unsafe { (*request).text.as_ptr() },
        _ => std::ptr::null(),
    }
}

/// The error of the last call that gave -1 or NULL: a text for people, valid until the next call for the handle. Empty
/// if there was no error. Never NULL.
///
/// # Safety
///
/// `request` is NULL or from `sl_request_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_error(request: *const SlRequest) -> *const c_char {
    // SAFETY: the caller's word.
    unsafe { request.as_ref() }
        .map_or(c"the request is NULL, or its text is".as_ptr(), |request| request.error.as_ptr())
}

/// Ends the request at once, and frees the handle. 0, or -1 if it ended with an error or is NULL.
///
/// # Safety
///
/// `request` is NULL or from `sl_request_open`, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_request_close(request: *mut SlRequest) -> i32 {
    let close = |request: &mut SlRequest| match request.stream.take() {
        Some(stream) => stream.close().map(|_| 0).map_err(|error| error.to_string()),
        None => Err(String::new()),
    };
    // SAFETY: the caller's word.
    let closed = unsafe { guarded(request, close) };
    if !request.is_null() {
        // SAFETY: `sl_request_open` made it by `Box::into_raw`, and it is not used again.
        drop(unsafe { Box::from_raw(request) });
    }
    closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_that_stays() {
        let mut request = std::ptr::null_mut();
        // SAFETY: C texts, and a handle that is closed at the end.
        unsafe {
            assert_eq!(sl_request_open(c"push_messages".as_ptr(), &mut request), 0);
            assert_eq!(guarded(request, |_| panic!("to be caught")), -1);
            assert_eq!(sl_request_push(request, c"x".as_ptr().cast(), 1, 0), -1);
            assert!(CStr::from_ptr(sl_request_error(request)).to_str().unwrap().contains("fault"));
            assert_eq!(sl_request_close(request), -1);
        }
    }

    #[test]
    fn null_is_an_error() {
        let none = std::ptr::null_mut();
        // SAFETY: null is permitted everywhere.
        unsafe {
            let mut request = none;
            assert_eq!(sl_request_open(std::ptr::null(), &mut request), -1);
            assert!(request.is_null());
            assert_eq!(sl_request_open(c"push_bytes".as_ptr(), std::ptr::null_mut()), -1);
            assert_eq!(sl_request_next(none, std::ptr::null_mut()), -1);
            assert_eq!(sl_request_push(none, std::ptr::null(), 0, SL_PUSH_END), -1);
            assert_eq!(sl_request_close(none), -1);
            assert!(sl_request_json(none).is_null());
            assert!(!sl_request_error(none).is_null());

            assert_eq!(sl_request_open(c"push_bytes".as_ptr(), &mut request), 0);
            assert_eq!(sl_request_next(request, std::ptr::null_mut()), -1);
            assert_eq!(sl_request_push(request, std::ptr::null(), 5, 0), -1);
            assert_eq!(sl_request_push(request, std::ptr::null(), 0, 99), -1);
            assert_eq!(sl_request_text(request, std::ptr::null(), std::ptr::null_mut(), std::ptr::null_mut()), -1);
            let mut number = 0;
            assert_eq!(sl_request_number(request, c"x".as_ptr(), &mut number), -1);
            assert!(sl_request_json(request).is_null());
            assert!(CStr::from_ptr(sl_request_error(request)).to_str().unwrap().contains("no block"));
            let half = [c"name".as_ptr(), std::ptr::null()];
            assert_eq!(sl_request_close(request), 0);
            assert_eq!(sl_request_open_with(c"push_bytes".as_ptr(), half.as_ptr(), &mut request), -1);
            assert_eq!(sl_request_close(request), -1);
        }
    }
}
