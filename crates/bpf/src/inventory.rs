//! Lists the kernel's programs, maps and links of all processes. Creates and changes nothing. Needs CAP_SYS_ADMIN;
//! programs on a device need CAP_NET_ADMIN.

use crate::{Hook, Instruction, PROG_TYPE_XDP, call, fd, raw};
use std::io;
use std::os::fd::AsFd;

const PROG_GET_NEXT_ID: libc::c_int = 11;
const MAP_GET_NEXT_ID: libc::c_int = 12;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_QUERY: libc::c_int = 16;
const LINK_GET_NEXT_ID: libc::c_int = 31;

/// The kinds of kernel objects that have an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A program.
    Program,
    /// A map.
    Map,
    /// The attachment of a program to a hook.
    Link,
}

#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// The next id after `id` that an object has; `None` if there is none.
pub fn next(object: Object, id: u32) -> io::Result<Option<u32>> {
    let command = match object {
        Object::Program => PROG_GET_NEXT_ID,
        Object::Map => MAP_GET_NEXT_ID,
        Object::Link => LINK_GET_NEXT_ID,
    };
    let mut attr = ById { id, next_id: 0, open_flags: 0 };
    match call(command, &mut attr) {
        Ok(_) => Ok(Some(attr.next_id)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an object with this id exists.
pub fn exists(object: Object, id: u32) -> io::Result<bool> {
    let Some(before) = id.checked_sub(1) else { return Ok(false) };
    Ok(next(object, before)? == Some(id))
}

/// The beginning of `struct bpf_prog_info`. The kernel fills in only as much as the caller has room for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    machine_bytes: u32,
    translated_bytes: u32,
    code: [u64; 2],
    loaded: u64,
    user: u32,
    maps: u32,
    map_ids: u64,
    name: [u8; 16],
}

impl ProgramInfo {
    /// Whether it is a program for [`Hook::Xdp`].
    pub fn is_xdp(&self) -> bool {
        self.kind == PROG_TYPE_XDP
    }

    /// The program's name, in characters that are safe on a terminal.
    pub fn name(&self) -> String {
        let letters = self.name.iter().take_while(|letter| **letter != 0).map(|letter| char::from(*letter));
        letters.filter(char::is_ascii_graphic).collect()
    }

    /// Number of instructions after the verifier, which adds some and removes unreachable ones.
    pub fn instructions(&self) -> u32 {
        self.translated_bytes / size_of::<Instruction>() as u32
    }
}

/// The kernel's information about the program `id`.
pub fn program(id: u32) -> io::Result<ProgramInfo> {
    #[repr(C)]
    struct Attr {
        fd: u32,
        info_len: u32,
        info: u64,
    }
    let program = fd(call(PROG_GET_FD_BY_ID, &mut ById { id, next_id: 0, open_flags: 0 })?);
    let mut info = ProgramInfo::default();
    let mut attr = Attr {
        fd: raw(program.as_fd()),
        info_len: size_of::<ProgramInfo>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    call(OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(info)
}

/// Most programs listed for one hook.
const PROGRAMS: usize = 64;

/// The programs on a hook of a device in this thread's network namespace, in the order in which they run.
pub fn on_hook(interface: u32, hook: Hook) -> io::Result<Vec<u32>> {
    #[repr(C)]
    struct Attr {
        target_ifindex: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        prog_ids: u64,
        count: u32,
        pad: u32,
        prog_attach_flags: u64,
        link_ids: u64,
        link_attach_flags: u64,
        revision: u64,
    }
    let mut ids = [0u32; PROGRAMS];
    let mut attr = Attr {
        target_ifindex: interface,
        attach_type: hook as u32,
        query_flags: 0,
        attach_flags: 0,
        prog_ids: ids.as_mut_ptr() as u64,
        count: ids.len() as u32,
        pad: 0,
        prog_attach_flags: 0,
        link_ids: 0,
        link_attach_flags: 0,
        revision: 0,
    };
    match call(PROG_QUERY, &mut attr) {
        Ok(_) => Ok(ids[..PROGRAMS.min(attr.count as usize)].to_vec()),
        // No program was ever attached there.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
