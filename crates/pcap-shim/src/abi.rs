//! Structures and numbers shared with callers of libpcap, from `pcap/pcap.h` and `pcap/bpf.h`, version 1.10.

use program::cbpf::Instruction;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `pcap_t`: a handle of libpcap's, or one of ours ([`Handle`](crate::handle::Handle)).
#[repr(C)]
pub struct Pcap {
    _data: [u8; 0],
    _marker: std::marker::PhantomData<*mut u8>,
}

/// `struct pcap_pkthdr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PacketHeader {
    /// Arrival time. With nanosecond precision `tv_usec` holds nanoseconds.
    pub time: libc::timeval,
    /// Captured bytes.
    pub captured: u32,
    /// Bytes on the wire.
    pub wire: u32,
}

impl Default for PacketHeader {
    fn default() -> Self {
        PacketHeader { time: libc::timeval { tv_sec: 0, tv_usec: 0 }, captured: 0, wire: 0 }
    }
}

/// `struct pcap_stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that passed the filter, including those lost afterwards.
    pub received: c_uint,
    /// Packets of these that were lost for lack of room.
    pub dropped: c_uint,
    /// Packets lost by the device or its driver.
    pub dropped_by_interface: c_uint,
}

/// `struct bpf_program`.
#[repr(C)]
#[derive(Debug)]
pub struct BpfProgram {
    /// The number of instructions.
    pub length: c_uint,
    /// The first instruction.
    pub instructions: *mut Instruction,
}

/// `pcap_handler`.
pub type Handler = Option<unsafe extern "C" fn(user: *mut u8, header: *const PacketHeader, bytes: *const u8)>;

/// `pcap_if_t`.
#[repr(C)]
pub struct Interface {
    /// The next in the list.
    pub next: *mut Interface,
    /// The name that opens it.
    pub name: *mut c_char,
    /// For people.
    pub description: *mut c_char,
    /// Its addresses.
    pub addresses: *mut c_void,
    /// PCAP_IF_ flags.
    pub flags: c_uint,
}

/// Size of the callers' buffers for error texts, and of a handle's own.
pub const ERROR_BYTES: usize = 256;

/// The longest snapshot length. Invalid lengths become this one.
pub const SNAPLEN_MAX: c_int = 262_144;

/// PCAP_TSTAMP_HOST.
pub const TIMES_OF_HOST: c_int = 0;
/// PCAP_TSTAMP_HOST_HIPREC.
pub const TIMES_OF_HOST_PRECISE: c_int = 2;
/// PCAP_TSTAMP_PRECISION_MICRO.
pub const MICROSECONDS: c_int = 0;
/// PCAP_TSTAMP_PRECISION_NANO.
pub const NANOSECONDS: c_int = 1;

/// DLT_EN10MB.
pub const ETHERNET: c_int = 1;
/// DLT_DOCSIS.
pub const DOCSIS: c_int = 143;

/// PCAP_ERROR_ and PCAP_WARNING_ numbers.
pub mod status {
    use std::ffi::c_int;

    /// The handle's error text says more.
    pub const ERROR: c_int = -1;
    /// pcap_breakloop() was called.
    pub const BREAK: c_int = -2;
    /// The call needs an active handle.
    pub const NOT_ACTIVATED: c_int = -3;
    /// The call needs a handle that is not active yet.
    pub const ACTIVATED: c_int = -4;
    /// There is no such device.
    pub const NO_SUCH_DEVICE: c_int = -5;
    /// Monitor mode is not supported.
    pub const NO_MONITOR_MODE: c_int = -6;
    /// Not permitted.
    pub const NOT_PERMITTED: c_int = -8;
    /// The device is down.
    pub const NOT_UP: c_int = -9;
    /// This precision is not supported.
    pub const PRECISION_NOT_SUPPORTED: c_int = -12;
    /// This type of timestamps is not supported; the handle works without it.
    pub const WARNING_TIMES_NOT_SUPPORTED: c_int = 3;
}

// As the C compiler lays them out.
const _: () = assert!(size_of::<Statistics>() == 12 && size_of::<Instruction>() == 8);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<PacketHeader>() == 24 && size_of::<Interface>() == 40 && size_of::<BpfProgram>() == 16);
