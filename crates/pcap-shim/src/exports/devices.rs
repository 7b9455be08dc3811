//! Lists of devices: libpcap's, and behind them each interface once more under a name of ours.

use crate::abi::Interface;
use crate::guard::{Failed, allocate, guarded};
use crate::handle::write_error;
use crate::names::{self, PREFIX, Target};
use crate::real::real;
use std::ffi::{CStr, CString, c_char, c_int};

/// Lists devices; for pcap_freealldevs().
///
/// # Safety
///
/// As libpcap's function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_findalldevs(list: *mut *mut Interface, error: *mut c_char) -> c_int {
    guarded(|| {
        let Some(function) = real().pcap_findalldevs else { return Failed::FAILED };
        // SAFETY: the caller's arguments, for the function the caller meant.
        let done = unsafe { function(list, error) };
        if done != 0 {
            return done;
        }
        // SAFETY: on success `list` points to a list of libpcap's, which nobody else has.
        if unsafe { add_ours(list) }.is_none() {
            write_error(error, "malloc: Cannot allocate memory");
            // SAFETY: the list as it is: every node in it is whole.
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

/// Puts nodes of ours behind libpcap's. `None` if there is no memory.
///
/// # Safety
///
/// `list` points to a list of devices that is ours to change.
unsafe fn add_ours(list: *mut *mut Interface) -> Option<()> {
    // SAFETY: by the caller's word; each node's `next` is a node or null, and its name a string.
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
            // Interfaces only: libpcap lists `any`, USB, Bluetooth and more besides. And nothing where it is switched off.
            if !names::is_interface(name) || !matches!(names::target(&ours), Some(Target::Device { .. })) {
                continue;
            }
            let description = CString::new(format!("{name}, captured once for all its readers (Streamline)")).ok()?;
            let node = allocate(size_of::<Interface>()).cast::<Interface>();
            if node.is_null() {
                return None;
            }
            // In the list before its texts are there, so that it is freed with the list.
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

/// A string that libpcap can free.
fn copy(text: &CStr) -> Option<*mut c_char> {
    let bytes = text.to_bytes_with_nul();
    let to = allocate(bytes.len()).cast::<u8>();
    if to.is_null() {
        return None;
    }
    // SAFETY: as many bytes, just allocated.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    Some(to.cast())
}

/// Network and mask of a device's address: those of the interface behind a name of ours.
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
            Some(Target::Request(_)) => {
                // As for `any`: no address, no error.
                // SAFETY: the caller's places.
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
