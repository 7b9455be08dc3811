//! The two variables that libpcap exports.

use std::ffi::{CStr, c_char};

/// The libpcap version whose functions this library has.
#[unsafe(export_name = "pcap_version")]
pub static VERSION: [u8; 7] = *b"1.10.3\0";

/// `struct eproto`.
#[repr(C)]
pub struct EthernetProtocol {
    name: *const c_char,
    number: u16,
}

// SAFETY: it points to constants, which never change.
unsafe impl Sync for EthernetProtocol {}

const fn row(name: &'static CStr, number: u16) -> EthernetProtocol {
    EthernetProtocol { name: name.as_ptr(), number }
}

/// Protocols that have names in expressions, as in libpcap's `nametoaddr.c`.
#[unsafe(export_name = "eproto_db")]
pub static ETHERNET_PROTOCOLS: [EthernetProtocol; 13] = [
    row(c"aarp", 0x80f3),
    row(c"arp", 0x0806),
    row(c"atalk", 0x809b),
    row(c"decnet", 0x6003),
    row(c"ip", 0x0800),
    row(c"ip6", 0x86dd),
    row(c"lat", 0x6004),
    row(c"loopback", 0x9000),
    row(c"mopdl", 0x6001),
    row(c"moprc", 0x6002),
    row(c"rarp", 0x8035),
    row(c"sca", 0x6007),
    EthernetProtocol { name: std::ptr::null(), number: 0 },
];
