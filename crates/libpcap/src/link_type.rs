//! Converts link types of capture files to libpcap's numbers inside a process.
//!
//! The numbers in files (LINKTYPE_) are the same on all systems, those in processes (DLT_) are not, but most are equal.
//! The five that differ on Linux are in libpcap's pcap-common.c and pcap/dlt.h.

use std::ffi::c_int;

/// The DLT_ number for a LINKTYPE_ number.
pub(crate) fn data_link_type(link_type: u16) -> c_int {
    match link_type {
        100 => 11, // ATM, RFC 1483
        101 => 12, // raw IP
        102 => 15, // SLIP of BSD/OS
        103 => 16, // PPP of BSD/OS
        106 => 19, // classical IP over ATM
        other => c_int::from(other),
    }
}

/// Whether packets of this link type begin with the address family of the system that captured them. NULL and LOOP of the
/// BSDs and of macOS, see <https://www.tcpdump.org/linktypes.html>.
pub(crate) const fn has_family(link_type: u16) -> bool {
    matches!(link_type, 0 | 108)
}
