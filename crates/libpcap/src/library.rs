//! The loaded library and the calls into it: all of this crate's unsafe code.

use crate::link_type::{data_link_type, has_family};
use crate::{MAX_EXPRESSION_BYTES, MAX_OPTIMISED_BYTES};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use program::cbpf::{Instruction, MAX_INSTRUCTIONS};
use program::{Compile, CompileError};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint};
use std::fmt;
use std::io::Write;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

/// Names of libpcap: Debian's and Ubuntu's, that of other systems, and the one in development packages.
const NAMES: [&str; 3] = ["libpcap.so.0.8", "libpcap.so.1", "libpcap.so"];

/// Names inside the library are looked up there first, not in the process, which may have a libpcap of ours. glibc's
/// dlfcn.h; other C libraries have no such flag.
const RTLD_DEEPBIND: c_int = if cfg!(target_env = "gnu") { 0x8 } else { 0 };

/// "Not known", for expressions that ask for the broadcast address of an IPv4 network.
const PCAP_NETMASK_UNKNOWN: u32 = 0xffff_ffff;

/// libpcap's limit on the captured length, which it takes for files that name none.
const MAXIMUM_SNAPLEN: u32 = 262_144;

/// Address space for the stack of the thread that compiles; pages are taken as they are used. libpcap has at most
/// 64 MiB of blocks for an expression (NCHUNKS) and recurses once for each, with frames smaller than a block.
const STACK_BYTES: usize = 128 << 20;

/// pcap.h.
const PCAP_ERRBUF_SIZE: usize = 256;

/// Versions before 1.8 compile with global variables, whichever handle they were loaded by.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `pcap_t`, which only the library looks into.
#[repr(C)]
struct Pcap {
    _data: [u8; 0],
    /// Neither sent to another thread nor shared.
    _marker: PhantomData<*mut u8>,
}

#[repr(C)]
struct BpfProgram {
    bf_len: c_uint,
    bf_insns: *mut Instruction,
}

// `struct bpf_insn` is two bytes, one, one, four.
const _: () = assert!(size_of::<Instruction>() == 8 && std::mem::offset_of!(Instruction, k) == 4);

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut Pcap;
type OpenOffline = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut Pcap;
type PcapCompile = unsafe extern "C" fn(*mut Pcap, *mut BpfProgram, *const c_char, c_int, u32) -> c_int;
type GetError = unsafe extern "C" fn(*mut Pcap) -> *mut c_char;
type FreeCode = unsafe extern "C" fn(*mut BpfProgram);
type Close = unsafe extern "C" fn(*mut Pcap);
type LibVersion = unsafe extern "C" fn() -> *const c_char;

/// A libpcap that has been loaded.
pub struct Libpcap {
    open_dead: OpenDead,
    open_offline: OpenOffline,
    compile: PcapCompile,
    get_error: GetError,
    free_code: FreeCode,
    close: Close,
    version: String,
    /// Keeps the functions above in memory; dropped last.
    _library: Library,
}

impl fmt::Debug for Libpcap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Libpcap").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Libpcap {
    /// Loads the system's libpcap by the first of its usual names that works.
    pub fn load() -> Result<Libpcap, CompileError> {
        let mut reasons = Vec::new();
        for name in NAMES {
            match Libpcap::open(name) {
                Ok(library) => return Ok(library),
                Err(error) => reasons.push(error.message),
            }
        }
        Err(CompileError::unavailable(format!(
            "tcpdump expressions need libpcap, which cannot be loaded; install it (Debian, Ubuntu: apt-get install \
             libpcap0.8 or libpcap0.8t64; Fedora: dnf install libpcap; Alpine: apk add libpcap). Tried: {}",
            reasons.join("; ")
        )))
    }

    /// Loads the library with this name, or at this path if it has a slash. The library's code runs, so the path must
    /// be trusted.
    pub fn open(path: impl AsRef<OsStr>) -> Result<Libpcap, CompileError> {
        let path = path.as_ref();
        let flags = RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
        // SAFETY: loading runs the library's initialisers. For the names used here these are libpcap's, which do not
        // touch the process; for other paths the caller vouches. The name is not checked further: an attacker with
        // write access to the loader's path can replace libc as well.
        let library = unsafe { Library::open(Some(path), flags) }
            .map_err(|error| CompileError::unavailable(format!("{}: {error}", path.display())))?;
        // SAFETY: each type is the one pcap.h declares for the name, unchanged since libpcap 0.8 (bpf_u_int32 is u32,
        // pcap_t opaque, bpf_program and bpf_insn as above).
        let (open_dead, open_offline, compile, get_error, free_code, close, lib_version) = unsafe {
            (
                find::<OpenDead>(&library, c"pcap_open_dead")?,
                find::<OpenOffline>(&library, c"pcap_open_offline")?,
                find::<PcapCompile>(&library, c"pcap_compile")?,
                find::<GetError>(&library, c"pcap_geterr")?,
                find::<FreeCode>(&library, c"pcap_freecode")?,
                find::<Close>(&library, c"pcap_close")?,
                find::<LibVersion>(&library, c"pcap_lib_version")?,
            )
        };
        // SAFETY: takes nothing; gives a string that lives as long as the library, or null.
        let version = unsafe { text(lib_version()) };
        Ok(Libpcap { open_dead, open_offline, compile, get_error, free_code, close, version, _library: library })
    }

    /// A handle for packets of this link type. Their address families are those of the system that captured, so for
    /// link types that begin with one the handle is that of a capture file: libpcap then knows every system's IPv6.
    fn handle(&self, link_type: u16, snap_len: c_int) -> Result<Handle<'_>, CompileError> {
        let handle = if has_family(link_type) {
            self.offline(link_type, snap_len)?
        } else {
            // SAFETY: takes any two numbers; gives a handle that this code has to close, or null.
            // (pcap_open_dead_with_tstamp_precision differs only for writing files.)
            unsafe { (self.open_dead)(data_link_type(link_type), snap_len) }
        };
        let handle = NonNull::new(handle).ok_or_else(|| CompileError::unavailable("libpcap: out of memory"))?;
        Ok(Handle { library: self, handle })
    }

    /// A handle of a capture file without packets.
    fn offline(&self, link_type: u16, snap_len: c_int) -> Result<*mut Pcap, CompileError> {
        let failed = |what: String| CompileError::unavailable(format!("libpcap cannot read an empty capture: {what}"));
        let (read, mut write) = std::io::pipe().map_err(|error| failed(error.to_string()))?;
        write.write_all(&file_header(link_type, snap_len)).map_err(|error| failed(error.to_string()))?;
        let path = CString::new(format!("/proc/self/fd/{}", read.as_raw_fd())).unwrap_or_default();
        let mut error: [c_char; PCAP_ERRBUF_SIZE] = [0; PCAP_ERRBUF_SIZE];
        // SAFETY: the path ends with a NUL and is only read; the buffer has the size that pcap.h asks for. Gives a handle
        // that this code has to close, or null with a text in the buffer.
        let handle = unsafe { (self.open_offline)(path.as_ptr(), error.as_mut_ptr()) };
        // The writer stays until here: opening a pipe without one blocks.
        drop(write);
        if handle.is_null() {
            // SAFETY: the library has written a string that ends with a NUL, or left the zeros.
            return Err(failed(unsafe { text(error.as_ptr()) }));
        }
        Ok(handle)
    }

    fn compile_here(
        &self,
        expression: &CStr,
        link_type: u16,
        snap_len: c_int,
    ) -> Result<Vec<Instruction>, CompileError> {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = self.handle(link_type, snap_len)?;
        let mut program = Compiled { library: self, program: BpfProgram { bf_len: 0, bf_insns: ptr::null_mut() } };
        let optimise = c_int::from(expression.count_bytes() <= MAX_OPTIMISED_BYTES);
        // SAFETY: the handle is open and used by this thread alone, and the program is writable. The expression ends
        // with a NUL and is only read. The library keeps no pointer after the call. ONE_AT_A_TIME is held for old
        // versions.
        let status = unsafe {
            (self.compile)(
                handle.handle.as_ptr(),
                &raw mut program.program,
                expression.as_ptr(),
                optimise,
                PCAP_NETMASK_UNKNOWN,
            )
        };
        if status != 0 {
            // SAFETY: the handle is open; the string lies inside it and is copied before it is closed.
            let message = unsafe { text((self.get_error)(handle.handle.as_ptr())) };
            return if message.contains("expression rejects all packets") {
                // BPF_RET|BPF_K
                Ok(vec![Instruction { code: 0x06, jt: 0, jf: 0, k: 0 }])
            } else {
                Err(CompileError::syntax(message))
            };
        }
        program.copy()
    }
}

impl Compile for Libpcap {
    fn compile(&self, expression: &str, link_type: u16, snap_len: u32) -> Result<Vec<Instruction>, CompileError> {
        if expression.len() > MAX_EXPRESSION_BYTES {
            return Err(CompileError::syntax(format!(
                "the expression has {} bytes, the limit is {MAX_EXPRESSION_BYTES}; split it and join the filters",
                expression.len()
            )));
        }
        let expression = CString::new(expression).map_err(|nul| {
            CompileError::syntax(format!("the expression has a NUL character after {} bytes", nul.nul_position()))
        })?;
        let snap_len = c_int::try_from(snap_len).ok().filter(|&len| len > 0).unwrap_or(MAXIMUM_SNAPLEN.cast_signed());
        let lost = |what: String| CompileError::unavailable(format!("libpcap: {what}"));
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("pcap_compile".into())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, || self.compile_here(&expression, link_type, snap_len))
                .map_err(|error| lost(format!("no thread to compile on: {error}")))?
                .join()
                .unwrap_or_else(|_| Err(lost("the thread that compiled panicked".into())))
        })
    }

    fn describe(&self) -> String {
        self.version.clone()
    }
}

/// A handle, closed when dropped.
struct Handle<'l> {
    library: &'l Libpcap,
    handle: NonNull<Pcap>,
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from pcap_open_dead or pcap_open_offline of this library and is closed here only.
        unsafe { (self.library.close)(self.handle.as_ptr()) }
    }
}

/// The header of a capture file, in this machine's byte order.
fn file_header(link_type: u16, snap_len: c_int) -> [u8; 24] {
    let mut header = [0; 24];
    header[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_ne_bytes());
    header[4..6].copy_from_slice(&2u16.to_ne_bytes());
    header[6..8].copy_from_slice(&4u16.to_ne_bytes());
    header[16..20].copy_from_slice(&snap_len.to_ne_bytes());
    header[20..].copy_from_slice(&u32::from(link_type).to_ne_bytes());
    header
}

/// A program with the library's instructions, freed when dropped.
struct Compiled<'l> {
    library: &'l Libpcap,
    program: BpfProgram,
}

impl Compiled<'_> {
    fn copy(&self) -> Result<Vec<Instruction>, CompileError> {
        let BpfProgram { bf_len, bf_insns } = self.program;
        let count = usize::try_from(bf_len).unwrap_or(usize::MAX);
        if count == 0 || bf_insns.is_null() || !bf_insns.is_aligned() {
            return Err(CompileError::unavailable("libpcap gave no program, nor an error"));
        }
        if count > MAX_INSTRUCTIONS {
            return Err(CompileError::syntax(format!(
                "the expression needs {count} instructions, the limit is {MAX_INSTRUCTIONS}; split it and join the filters"
            )));
        }
        // SAFETY: after pcap_compile has returned 0, bf_insns points to bf_len initialised instructions that stay until
        // pcap_freecode; checked above: not null, aligned, and few enough for an allocation. Any bytes are an
        // Instruction.
        let instructions = unsafe { std::slice::from_raw_parts(bf_insns, count) };
        Ok(instructions.to_vec())
    }
}

impl Drop for Compiled<'_> {
    fn drop(&mut self) {
        // SAFETY: the program is empty, as made here, or as pcap_compile of this library left it; pcap_freecode takes
        // both and is called once.
        unsafe { (self.library.free_code)(&raw mut self.program) }
    }
}

/// A function of the library.
///
/// # Safety
/// `F` must be the type of the function with this name.
unsafe fn find<F: Copy>(library: &Library, name: &CStr) -> Result<F, CompileError> {
    // SAFETY: the caller vouches for the type. The copy outlives the symbol but not the library, which `Libpcap` keeps.
    let symbol = unsafe { library.get::<F>(name) };
    symbol.map(|symbol| *symbol).map_err(|error| CompileError::unavailable(format!("this is no libpcap: {error}")))
}

/// A copy of a C string.
///
/// # Safety
/// `string` is null or points to a string that ends with a NUL and does not change during the call.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return "libpcap gave no text".into();
    }
    // SAFETY: not null; the rest is the caller's.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}
