//! Lists of devices: libpcap's, followed by each interface again under a name with our prefix.

use crate::abi::Interface;
use crate::guard::{Failed, guarded};
use crate::handle::write_error;
use crate::names::{self, PREFIX, Target};
use crate::real::{allocate, real};
use std::ffi::{CStr, CString, c_char, c_int};

/// Lists devices. pcap_freealldevs() frees the list.
///
/// # Safety
///
/// As libpcap's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_findalldevs(list: *mut *mut Interface, error: *mut c_char) -> c_int {
    guarded(|| {
        let Some(function) = real().pcap_findalldevs else { return Failed::FAILED };
        // SAFETY: passes the caller's arguments to the function that the caller meant.
        let done = unsafe { function(list, error) };
        if done != 0 {
            return done;
        }
        // SAFETY: on success `list` points to libpcap's new list, which no other code uses.
        if unsafe { add_ours(list) }.is_none() {
            write_error(error, "malloc: Cannot allocate memory");
            // SAFETY: every node in the list is complete.
            unsafe {
                if let Some(free) = real().pcap_freealldevs {
                    free(*list);
                }
                *list = std::ptr::null_mut();
            }
            return Failed::FAILED;
        }
        0
    })
}

/// Appends our nodes to libpcap's. `None`: out of memory.
///
/// # Safety
///
/// `list` points to a list of devices that this function may change.
unsafe fn add_ours(list: *mut *mut Interface) -> Option<()> {
    // SAFETY: the caller guarantees the list; each node's `next` is a node or null, and its name is a string.
    unsafe {
        let mut names = Vec::new();
        let mut end = list;
        while !(*end).is_null() {
            let node = *end;
            if !(*node).name.is_null() {
                names.push((CStr::from_ptr((*node).name).to_owned(), (*node).flags));
            }
            end = &raw mut (*node).next;
        }
        for (name, flags) in names {
            let Ok(name) = name.to_str() else { continue };
            let Ok(ours) = CString::new(format!("{PREFIX}{name}")) else { continue };
            // Interfaces only: libpcap also lists `any`, USB, Bluetooth and others. No nodes if the library is switched off.
            if !names::is_interface(name) || !matches!(names::target(&ours), Some(Target::Device { .. })) {
                continue;
            }
            let description = CString::new(format!("{name}, captured once for all its readers (Streamline)")).ok()?;
            let node = allocate(size_of::<Interface>()).cast::<Interface>();
            if node.is_null() {
                return None;
            }
            // Linked before its texts exist, so that the node is freed with the list.
            node.write(Interface {
                next: std::ptr::null_mut(),
                name: std::ptr::null_mut(),
                description: std::ptr::null_mut(),
                addresses: std::ptr::null_mut(),
                flags,
            });
            *end = node;
            end = &raw mut (*node).next;
            (*node).name = copy(&ours)?;
            (*node).description = copy(&description)?;
        }
        Some(())
    }
}

/// Copies a string into memory that libpcap can free.
fn copy(text: &CStr) -> Option<*mut c_char> {
    let bytes = text.to_bytes_with_nul();
    let to = allocate(bytes.len()).cast::<u8>();
    if to.is_null() {
        return None;
    }
    // SAFETY: the new memory has this many bytes.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Some(to.cast())
}

/// Network and mask of a device's address. For a name with our prefix: of the interface behind it.
///
/// # Safety
///
/// As libpcap's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lookupnet(
    device: *const c_char,
    net: *mut u32,
    mask: *mut u32,
    error: *mut c_char,
) -> c_int {
    guarded(|| {
        let Some(function) = real().pcap_lookupnet else { return Failed::FAILED };
        // SAFETY: the caller's name, or null.
        let target = (!device.is_null()).then(|| names::target(unsafe { CStr::from_ptr(device) })).flatten();
        let name = match target {
            None => None,
            Some(Target::Device { name, .. }) => CString::new(name).ok(),
            Some(Target::Request(_) | Target::Any) => {
                // As libpcap for `any`: no address and no error.
                // SAFETY: the caller passes valid places.
                unsafe {
                    net.write(0);
                    mask.write(0);
                }
                return 0;
            }
        };
        // SAFETY: the caller's arguments, for the function the caller meant, with a name that is libpcap's.
        unsafe { function(name.as_ref().map_or(device, |name| name.as_ptr()), net, mask, error) }
    })
}
