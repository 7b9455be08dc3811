//! The installed libpcap: found once, and called for everything that is not ours.
//!
//! If this library is preloaded, libpcap is the next library in the process that has the names. If it takes libpcap's
//! place, it opens libpcap by its path, since the name is its own.
//!
//! One pitfall exists both ways: libpcap calls its own exports by name, so that its `pcap_lookupdev` enters *our*
//! `pcap_findalldevs`. Therefore each of our functions looks only at the handle or device in its arguments. None of
//! ours calls a function of libpcap that would come back with one of our names.
//!
//! `functions!` lists every function with its C type. Functions that are only forwarded are exported here, the others
//! from [`exports`](crate::exports).

use crate::abi::{BpfProgram, Handler, Interface, PacketHeader, Pcap, Statistics};
use crate::guard::{Failed, guarded};
use program::cbpf::Instruction;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Where libpcap may be, in the order of the search, if no name leads to it.
const PATHS: &[&CStr] = &[
    #[cfg(target_arch = "x86_64")]
    c"/usr/lib/x86_64-linux-gnu/libpcap.so.0.8",
    #[cfg(target_arch = "aarch64")]
    c"/usr/lib/aarch64-linux-gnu/libpcap.so.0.8",
    c"/usr/lib64/libpcap.so.1",
    c"/usr/lib/libpcap.so.1",
    c"/usr/lib/libpcap.so.0.8",
    c"/lib64/libpcap.so.1",
    c"/usr/local/lib/libpcap.so.1",
];

/// The path of libpcap, if it is elsewhere.
const PATH_VARIABLE: &CStr = c"STREAMLINE_PCAP_REAL";

/// Symbols inside the library are then looked up in it first: in the process they are ours. Only glibc has this flag.
const DEEP_BIND: c_int = if cfg!(target_env = "gnu") { libc::RTLD_DEEPBIND } else { 0 };

macro_rules! functions {
    (
        handed on { $(fn $on:ident($($on_arg:ident: $on_type:ty),*) $(-> $on_gives:ty)?;)* }
        looked at { $(fn $at:ident($($at_arg:ident: $at_type:ty),*) $(-> $at_gives:ty)?;)* }
    ) => {
        /// libpcap's functions by name. `None`: the installed libpcap lacks the function.
        #[derive(Default)]
        pub struct Real {
            /// The allocator that it uses.
            pub allocate: Option<unsafe extern "C" fn(usize) -> *mut c_void>,
            /// The C library's flag for a single thread: not 0 while there is only one.
            single_threaded: Option<&'static AtomicU8>,
            $(/// By its name in C.
            pub $on: Option<unsafe extern "C" fn($($on_type),*) $(-> $on_gives)?>,)*
            $(/// By its name in C.
            pub $at: Option<unsafe extern "C" fn($($at_type),*) $(-> $at_gives)?>,)*
        }

        impl Real {
            fn load(library: &Library) -> Real {
                // SAFETY: libpcap's headers declare this type for each name. Missing functions are `None`.
                unsafe {
                    Real {
                        allocate: library.allocator(),
                        single_threaded: Library(libc::RTLD_DEFAULT).variable(c"__libc_single_threaded"),
                        $($on: library.function(name(concat!(stringify!($on), "\0"))),)*
                        $($at: library.function(name(concat!(stringify!($at), "\0"))),)*
                    }
                }
            }
        }

        $(
            /// Forwarded to libpcap unchanged.
            ///
            /// # Safety
            ///
            /// As libpcap's function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $on($($on_arg: $on_type),*) $(-> $on_gives)? {
                guarded(|| match real().$on {
                    // SAFETY: passes the caller's arguments to the function that the caller meant.
                    Some(function) => unsafe { function($($on_arg),*) },
                    None => Failed::FAILED,
                })
            }
        )*
    };
}

functions! {
    handed on {
        fn bpf_dump(program: *const BpfProgram, option: c_int);
        fn bpf_filter(code: *const Instruction, packet: *const u8, wire: c_uint, captured: c_uint) -> c_uint;
        fn bpf_image(instruction: *const Instruction, at: c_int) -> *mut c_char;
        fn bpf_validate(code: *const Instruction, length: c_int) -> c_int;
        fn pcap_compile_nopcap(snaplen: c_int, link: c_int, program: *mut BpfProgram, text: *const c_char, optimise: c_int, mask: u32) -> c_int;
        fn pcap_datalink_name_to_val(name: *const c_char) -> c_int;
        fn pcap_datalink_val_to_description(link: c_int) -> *const c_char;
        fn pcap_datalink_val_to_description_or_dlt(link: c_int) -> *const c_char;
        fn pcap_datalink_val_to_name(link: c_int) -> *const c_char;
        fn pcap_dump_file(dumper: *mut c_void) -> *mut c_void;
        fn pcap_dump_flush(dumper: *mut c_void) -> c_int;
        fn pcap_dump_ftell(dumper: *mut c_void) -> c_long;
        fn pcap_dump_ftell64(dumper: *mut c_void) -> i64;
        fn pcap_ether_aton(text: *const c_char) -> *mut u8;
        fn pcap_ether_hostton(name: *const c_char) -> *mut u8;
        fn pcap_fopen_offline(file: *mut c_void, error: *mut c_char) -> *mut Pcap;
        fn pcap_fopen_offline_with_tstamp_precision(file: *mut c_void, precision: c_uint, error: *mut c_char) -> *mut Pcap;
        fn pcap_free_datalinks(list: *mut c_int);
        fn pcap_free_tstamp_types(list: *mut c_int);
        fn pcap_freealldevs(list: *mut Interface);
        fn pcap_freecode(program: *mut BpfProgram);
        fn pcap_init(options: c_uint, error: *mut c_char) -> c_int;
        fn pcap_lookupdev(error: *mut c_char) -> *mut c_char;
        fn pcap_nametoaddr(name: *const c_char) -> *mut *mut u32;
        fn pcap_nametoaddrinfo(name: *const c_char) -> *mut c_void;
        fn pcap_nametoeproto(name: *const c_char) -> c_int;
        fn pcap_nametollc(name: *const c_char) -> c_int;
        fn pcap_nametonetaddr(name: *const c_char) -> u32;
        fn pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int;
        fn pcap_nametoportrange(name: *const c_char, low: *mut c_int, high: *mut c_int, protocol: *mut c_int) -> c_int;
        fn pcap_nametoproto(name: *const c_char) -> c_int;
        fn pcap_next_etherent(file: *mut c_void) -> *mut c_void;
        fn pcap_offline_filter(program: *const BpfProgram, header: *const PacketHeader, bytes: *const u8) -> c_int;
        fn pcap_open_dead(link: c_int, snaplen: c_int) -> *mut Pcap;
        fn pcap_open_dead_with_tstamp_precision(link: c_int, snaplen: c_int, precision: c_uint) -> *mut Pcap;
        fn pcap_open_offline(path: *const c_char, error: *mut c_char) -> *mut Pcap;
        fn pcap_open_offline_with_tstamp_precision(path: *const c_char, precision: c_uint, error: *mut c_char) -> *mut Pcap;
        fn pcap_statustostr(status: c_int) -> *const c_char;
        fn pcap_strerror(number: c_int) -> *const c_char;
        fn pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int;
        fn pcap_tstamp_type_val_to_description(times: c_int) -> *const c_char;
        fn pcap_tstamp_type_val_to_name(times: c_int) -> *const c_char;
    }
    looked at {
        fn pcap_activate(handle: *mut Pcap) -> c_int;
        fn pcap_breakloop(handle: *mut Pcap);
        fn pcap_bufsize(handle: *mut Pcap) -> c_int;
        fn pcap_can_set_rfmon(handle: *mut Pcap) -> c_int;
        fn pcap_close(handle: *mut Pcap);
        fn pcap_compile(handle: *mut Pcap, program: *mut BpfProgram, text: *const c_char, optimise: c_int, mask: u32) -> c_int;
        fn pcap_create(device: *const c_char, error: *mut c_char) -> *mut Pcap;
        fn pcap_datalink(handle: *mut Pcap) -> c_int;
        fn pcap_datalink_ext(handle: *mut Pcap) -> c_int;
        fn pcap_dispatch(handle: *mut Pcap, count: c_int, callback: Handler, user: *mut u8) -> c_int;
        fn pcap_dump(dumper: *mut u8, header: *const PacketHeader, bytes: *const u8);
        fn pcap_dump_close(dumper: *mut c_void);
        fn pcap_dump_fopen(handle: *mut Pcap, file: *mut c_void) -> *mut c_void;
        fn pcap_dump_open(handle: *mut Pcap, path: *const c_char) -> *mut c_void;
        fn pcap_dump_open_append(handle: *mut Pcap, path: *const c_char) -> *mut c_void;
        fn pcap_file(handle: *mut Pcap) -> *mut c_void;
        fn pcap_fileno(handle: *mut Pcap) -> c_int;
        fn pcap_findalldevs(list: *mut *mut Interface, error: *mut c_char) -> c_int;
        fn pcap_get_required_select_timeout(handle: *mut Pcap) -> *const libc::timeval;
        fn pcap_get_selectable_fd(handle: *mut Pcap) -> c_int;
        fn pcap_get_tstamp_precision(handle: *mut Pcap) -> c_int;
        fn pcap_geterr(handle: *mut Pcap) -> *mut c_char;
        fn pcap_getnonblock(handle: *mut Pcap, error: *mut c_char) -> c_int;
        fn pcap_inject(handle: *mut Pcap, bytes: *const c_void, length: usize) -> c_int;
        fn pcap_is_swapped(handle: *mut Pcap) -> c_int;
        fn pcap_lib_version() -> *const c_char;
        fn pcap_list_datalinks(handle: *mut Pcap, list: *mut *mut c_int) -> c_int;
        fn pcap_list_tstamp_types(handle: *mut Pcap, list: *mut *mut c_int) -> c_int;
        fn pcap_lookupnet(device: *const c_char, net: *mut u32, mask: *mut u32, error: *mut c_char) -> c_int;
        fn pcap_loop(handle: *mut Pcap, count: c_int, callback: Handler, user: *mut u8) -> c_int;
        fn pcap_major_version(handle: *mut Pcap) -> c_int;
        fn pcap_minor_version(handle: *mut Pcap) -> c_int;
        fn pcap_next(handle: *mut Pcap, header: *mut PacketHeader) -> *const u8;
        fn pcap_next_ex(handle: *mut Pcap, header: *mut *mut PacketHeader, bytes: *mut *const u8) -> c_int;
        fn pcap_open_live(device: *const c_char, snaplen: c_int, promiscuous: c_int, timeout: c_int, error: *mut c_char) -> *mut Pcap;
        fn pcap_perror(handle: *mut Pcap, prefix: *const c_char);
        fn pcap_sendpacket(handle: *mut Pcap, bytes: *const u8, length: c_int) -> c_int;
        fn pcap_set_buffer_size(handle: *mut Pcap, bytes: c_int) -> c_int;
        fn pcap_set_datalink(handle: *mut Pcap, link: c_int) -> c_int;
        fn pcap_set_immediate_mode(handle: *mut Pcap, on: c_int) -> c_int;
        fn pcap_set_promisc(handle: *mut Pcap, on: c_int) -> c_int;
        fn pcap_set_protocol_linux(handle: *mut Pcap, protocol: c_int) -> c_int;
        fn pcap_set_rfmon(handle: *mut Pcap, on: c_int) -> c_int;
        fn pcap_set_snaplen(handle: *mut Pcap, snaplen: c_int) -> c_int;
        fn pcap_set_timeout(handle: *mut Pcap, milliseconds: c_int) -> c_int;
        fn pcap_set_tstamp_precision(handle: *mut Pcap, precision: c_int) -> c_int;
        fn pcap_set_tstamp_type(handle: *mut Pcap, times: c_int) -> c_int;
        fn pcap_setdirection(handle: *mut Pcap, direction: c_int) -> c_int;
        fn pcap_setfilter(handle: *mut Pcap, program: *mut BpfProgram) -> c_int;
        fn pcap_setnonblock(handle: *mut Pcap, on: c_int, error: *mut c_char) -> c_int;
        fn pcap_snapshot(handle: *mut Pcap) -> c_int;
        fn pcap_stats(handle: *mut Pcap, statistics: *mut Statistics) -> c_int;
    }
}

/// Finds libpcap at the first call. Signal handlers may make later calls.
pub fn real() -> &'static Real {
    static REAL: OnceLock<Real> = OnceLock::new();
    REAL.get_or_init(|| match Library::find() {
        Some(library) => Real::load(&library),
        None => {
            // Each function only reports a failure. This tells the reason, once.
            eprintln!(
                "streamline: libpcap is not installed where it is looked for; STREAMLINE_PCAP_REAL=PATH says where it is"
            );
            Real::default()
        }
    })
}

impl Real {
    /// Whether this process has only one thread, so that no locks are needed. No, if the C library does not say.
    #[inline]
    pub fn has_one_thread(&self) -> bool {
        // The word changes before a second thread starts, on the only thread that there is then.
        self.single_threaded.is_some_and(|word| word.load(Ordering::Relaxed) != 0)
    }
}

/// A name that ends with a NUL.
fn name(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default()
}

/// An environment variable. `None` in programs that run with more rights than their user has.
pub fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: reads a value that the kernel set at program start.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return None;
    }
    // SAFETY: the name ends with a NUL.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a string of the environment, which is static unless the program changes this very variable.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// A library for looking up names. It is never unloaded.
struct Library(*mut c_void);

impl Library {
    fn find() -> Option<Library> {
        let next = Library(libc::RTLD_NEXT);
        if next.is_libpcap() {
            return Some(next);
        }
        let said = variable(PATH_VARIABLE);
        said.into_iter().chain(PATHS.iter().copied()).find_map(Library::open)
    }

    fn open(path: &CStr) -> Option<Library> {
        // SAFETY: loading runs the library's initialisers, and those of libpcap change nothing in the process. The path
        // is a system path, or one that the user vouches for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | DEEP_BIND) };
        Some(Library(handle)).filter(|library| !handle.is_null() && library.is_libpcap())
    }

    /// Whether it has libpcap's functions, and is not this very library.
    fn is_libpcap(&self) -> bool {
        let found = self.symbol(c"pcap_open_dead");
        let ours = pcap_open_dead as unsafe extern "C" fn(c_int, c_int) -> *mut Pcap;
        !found.is_null() && found.cast_const() != ours as *const c_void
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a handle of dlopen that is never closed, or a special one, and a name that ends with a NUL.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// The library's allocator. A library that was opened with its own symbols first may use another one than the process.
    fn allocator(&self) -> Option<unsafe extern "C" fn(usize) -> *mut c_void> {
        if self.0 == libc::RTLD_NEXT {
            return Some(libc::malloc);
        }
        // SAFETY: this is the type of `malloc`.
        unsafe { self.function(c"malloc") }
    }

    /// The variable of this name.
    ///
    /// # Safety
    ///
    /// The variable is one byte, and stays.
    unsafe fn variable(&self, name: &CStr) -> Option<&'static AtomicU8> {
        // SAFETY: null, or valid by the caller's guarantee; an atomic byte has the layout of a byte.
        unsafe { self.symbol(name).cast::<AtomicU8>().as_ref() }
    }

    /// The function of this name.
    ///
    /// # Safety
    ///
    /// `F` is its pointer type.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let symbol = self.symbol(name);
        // SAFETY: not null, as large as a pointer, and of this type by the caller's guarantee.
        (!symbol.is_null()).then(|| unsafe { std::mem::transmute_copy(&symbol) })
    }
}

/// Allocates memory that libpcap, or a program, will free, with the allocator that libpcap uses.
pub fn allocate(bytes: usize) -> *mut c_void {
    let allocate = crate::real::real().allocate.unwrap_or(libc::malloc);
    // SAFETY: this is `malloc`, whatever name it was found under.
    unsafe { allocate(bytes) }
}
