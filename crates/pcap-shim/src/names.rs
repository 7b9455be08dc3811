//! Which devices are ours, by their names.
//!
//! | name | meaning |
//! |---|---|
//! | `sl:eth0` | the device eth0 |
//! | `sl:eth0@1/4` | the second of four parts of its flows |
//! | `sl:` and a request | the packets that the request gives |
//! | `eth0` | the device, if `STREAMLINE_PCAP` lists it (`eth0,eth1`) or is `all`: every network interface here or of the daemon |
//! | `any` | all network interfaces together, if `STREAMLINE_PCAP` lists it or is `all` |
//! | others | libpcap's: files, USB, Bluetooth, rpcap |
//!
//! With `STREAMLINE_PCAP=off` all names are libpcap's.

use capture::{CaptureError, Partition};
use std::ffi::{CStr, CString};

/// The prefix of our names.
pub const PREFIX: &str = "sl:";

/// The variable that says which plain names are ours.
const VARIABLE: &CStr = c"STREAMLINE_PCAP";

/// The object that a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A device, or a part of its flows.
    Device {
        /// Its name.
        name: String,
        /// The part, as the name has it.
        partition: Option<String>,
    },
    /// The packets of a request.
    Request(String),
    /// The packets of all devices.
    Any,
}

/// libpcap's name for all devices.
const ANY: &str = "any";

impl Target {
    /// The part of the flows.
    pub fn partition(&self) -> Result<Option<Partition>, CaptureError> {
        match self {
            Target::Device { partition: Some(text), .. } => text.parse().map(Some),
            _ => Ok(None),
        }
    }
}

/// The target of a name. `None`: the name is libpcap's.
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
        // A request has several words, or parentheses in the papers' notation. A device's name has neither.
        let is_request = rest.contains(|one: char| one.is_whitespace() || "|(".contains(one));
        return Some(if is_request { Target::Request(rest.into()) } else { device(rest) });
    }
    if name == ANY {
        return (said == "all" || said.split(',').any(|one| one.trim() == ANY)).then_some(Target::Any);
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
        // `ip` writes `eth0.5@eth0` for a device on another one: that is no part of the flows.
        Some((name, partition)) if partition.starts_with(|one: char| one.is_ascii_digit()) => {
            Target::Device { name: name.into(), partition: Some(partition.into()) }
        }
        _ => Target::Device { name: text.into(), partition: None },
    }
}

/// Whether it is a network interface of this process's namespace. (`/sys` may belong to another one.)
pub fn is_interface(name: &str) -> bool {
    let Ok(name) = CString::new(name) else { return false };
    // SAFETY: the name ends with a NUL.
    unsafe { libc::if_nametoindex(name.as_ptr()) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ours_or_not() {
        let device = |name: &str, partition: Option<&str>| {
            Some(Target::Device { name: name.into(), partition: partition.map(str::to_string) })
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
            ("any", "all", Some(Target::Any)),
            ("any", "eth0,any", Some(Target::Any)),
            ("any", "eth0", None),
            ("usbmon1", "all", None),
            ("eth7", "off", None),
        ];
        for (name, said, expected) in rows {
            assert_eq!(find(name, said, &|name| name.starts_with("eth")), expected, "{name} {said}");
        }
    }
}
