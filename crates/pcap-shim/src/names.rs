//! Which devices are ours, by name.
//!
//! `sl:eth0` is; `sl:eth0@1/4` is the second of four parts of its traffic by flow; `sl:` and a request is what that
//! request gives. Plain names are where `STREAMLINE_PCAP` says so: `eth0,eth1`, or `all` for every network interface,
//! here or where the daemon is. With `STREAMLINE_PCAP=off` nothing is. Everything else is libpcap's: `any`, files, USB, Bluetooth, rpcap.

use capture::{CaptureError, Share};
use std::ffi::{CStr, CString};

/// What names of ours begin with.
pub const PREFIX: &str = "sl:";

/// The variable that says which plain names are ours.
const VARIABLE: &CStr = c"STREAMLINE_PCAP";

/// What is read under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A device, or a part of its flows.
    Device {
        /// Its name.
        name: String,
        /// Which part, as it was written.
        share: Option<String>,
    },
    /// What a request gives.
    Request(String),
}

impl Target {
    /// The part of the flows.
    pub fn share(&self) -> Result<Option<Share>, CaptureError> {
        match self {
            Target::Device { share: Some(text), .. } => text.parse().map(Some),
            _ => Ok(None),
        }
    }
}

/// What `name` means to us; none if it is libpcap's.
pub fn target(name: &CStr) -> Option<Target> {
    let name = name.to_str().ok()?;
    let said = crate::real::variable(VARIABLE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // A daemon's devices are those of its own network namespace.
    find(name, said, &|name| is_interface(name) || crate::host::daemon_has(name))
}

fn find(name: &str, said: &str, is_interface: &dyn Fn(&str) -> bool) -> Option<Target> {
    if said == "off" {
        return None;
    }
    if let Some(rest) = name.strip_prefix(PREFIX) {
        // A request has more than one word, or is in the notation with parentheses; a device's name has neither.
        let is_request = rest.contains(|one: char| one.is_whitespace() || "|(".contains(one));
        return Some(if is_request { Target::Request(rest.into()) } else { device(rest) });
    }
    let target = device(name);
    let Target::Device { name, .. } = &target else { return None };
    let ours = match said {
        "all" => is_interface(name),
        list => list.split(',').any(|one| one.trim() == name && !name.is_empty()),
    };
    ours.then_some(target)
}

fn device(text: &str) -> Target {
    match text.split_once('@') {
        // `eth0.5@eth0` is how `ip` writes a device on another: that is no part of the traffic.
        Some((name, share)) if share.starts_with(|one: char| one.is_ascii_digit()) => {
            Target::Device { name: name.into(), share: Some(share.into()) }
        }
        _ => Target::Device { name: text.into(), share: None },
    }
}

/// Is it a network interface of the namespace this process is in? (`/sys` may be another's.)
pub fn is_interface(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: a name with its NUL.
    unsafe { libc::if_nametoindex(name.as_ptr()) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ours_or_not() {
        let device = |name: &str, share: Option<&str>| {
            Some(Target::Device { name: name.into(), share: share.map(str::to_string) })
        };
        let rows = [
            ("sl:eth0", "", device("eth0", None)),
            ("sl:eth0@1/4", "", device("eth0", Some("1/4"))),
            ("sl:eth0@9/4", "", device("eth0", Some("9/4"))),
            ("sl:v.5@v", "", device("v.5@v", None)),
            ("sl:pcap x.pcap", "", Some(Target::Request("pcap x.pcap".into()))),
            ("sl:(pcap,file=x)", "", Some(Target::Request("(pcap,file=x)".into()))),
            ("sl:eth0", "off", None),
            ("eth0", "", None),
            ("eth0", "eth0", device("eth0", None)),
            ("eth0@0/2", "lo, eth0", device("eth0", Some("0/2"))),
            ("eth1", "eth0", None),
            ("", "eth0,", None),
            ("eth7", "all", device("eth7", None)),
            ("any", "all", None),
            ("usbmon1", "all", None),
            ("eth7", "off", None),
        ];
        for (name, said, expected) in rows {
            assert_eq!(find(name, said, &|name| name.starts_with("eth")), expected, "{name} {said}");
        }
    }
}
