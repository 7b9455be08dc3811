//! Opens a device for an interface: an AF_XDP socket if possible, else a packet socket; or a tap device, or none.

use crate::error::{NetError, NetErrorKind};
use crate::routes::is_host;
use crate::sharing::{self, SharedDevice};
use driver::change::Change;
use driver::ethtool::Offloads;
use driver::link::Link;
use driver::namespace::Namespace;
use driver::netlink::Netlink;
use driver::{Receive, Transmit, af_packet, af_xdp, device, tuntap};
use flow::OpenInterface;
use kernel::ShareProgram;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// An opened device, in both directions.
pub(crate) struct Opened {
    /// Receives frames.
    pub(crate) receive: Box<dyn Receive>,
    /// Sends frames.
    pub(crate) transmit: Box<dyn Transmit>,
    /// The hardware address of its frames.
    pub(crate) mac: [u8; 6],
    /// Bytes of the longest IP packet that it accepts.
    pub(crate) mtu: u32,
    /// How it is reached: a word for [`OpenInterface::how`], and a text for users.
    pub(crate) via: &'static str,
    pub(crate) how: String,
    /// Whether received packets may have unfinished transport checksums.
    pub(crate) unfinished_checksums: bool,
    /// For a device that the host keeps. `None`: only Streamline uses it.
    pub(crate) share: Option<SharedDevice>,
    /// Keeps the device's state between two processes. `None`: the device needs no such descriptor.
    pub(crate) handle: Option<Arc<OwnedFd>>,
}

/// What an ended process left of a device, for the next process.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) mac: [u8; 6],
    pub(crate) handle: Option<OwnedFd>,
}

fn copy(fd: BorrowedFd<'_>) -> Result<Arc<OwnedFd>, NetError> {
    let copy = fd.try_clone_to_owned().map_err(|error| NetError::system("have a copy of a file descriptor", error))?;
    Ok(Arc::new(copy))
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("how", &self.how).field("mac", &self.mac).finish_non_exhaustive()
    }
}

/// The value of `how` for an interface without a device.
pub(crate) const LOOPBACK: &str = "loopback";

/// Bytes of the longest packet on an interface without a device: as on Ethernet, so that programs behave as they will there.
const LOOPBACK_MTU: u32 = 1500;

/// Bytes of an AF_XDP chunk besides the IP packet: the kernel's headroom, and the Ethernet header with a tag.
const FRAME_SLACK: u32 = 256 + 18;

/// Opens the device in this thread's network namespace. `left`: an ended process had it.
pub(crate) fn open(open: &OpenInterface, left: Option<Left>) -> Result<Opened, NetError> {
    let namespace = Namespace::current().map_err(|error| NetError::system("find the network namespace", error))?;
    match open.how.as_deref() {
        None | Some("af_xdp") if open.share => shared(&namespace, &open.device, left),
        Some(how @ ("af_packet" | "tuntap" | LOOPBACK)) if open.share => {
            let text = format!("to share a device with the host takes XDP, and `{how}` has none; leave it out");
            Err(NetError::new(NetErrorKind::Request, text))
        }
        None => {
            let link = check(&namespace, open)?;
            by_xdp(&namespace, &link, wants_ipv6(open), None).or_else(|why| {
                let opened = by_packet_socket(&namespace, &link, wants_ipv6(open))?;
                Ok(Opened { how: format!("{}, not AF_XDP: {why}", opened.how), ..opened })
            })
        }
        Some("af_xdp") => by_xdp(&namespace, &check(&namespace, open)?, wants_ipv6(open), None),
        Some("af_packet") => by_packet_socket(&namespace, &check(&namespace, open)?, wants_ipv6(open)),
        Some("tuntap") => by_tap(&namespace, &open.device, left),
        Some(LOOPBACK) => by_loopback(&namespace, &open.device, left),
        Some(how) => {
            let text = format!("`{how}` is no way to a device; there are af_xdp, af_packet, tuntap and {LOOPBACK}");
            Err(NetError::new(NetErrorKind::Request, text))
        }
    }
}

/// Whether the interface will have an IPv6 address.
fn wants_ipv6(open: &OpenInterface) -> bool {
    open.addresses.iter().any(|(address, _)| address.is_ipv6())
}

/// Checks that the host does not use the device, and switches it on.
fn check(namespace: &Namespace, open: &OpenInterface) -> Result<Link, NetError> {
    let name = open.device.as_str();
    let link = ethernet(namespace, name)?;
    let refuse = |kind, text: String| Err(NetError::new(kind, text));
    // The kernel gives itself a link-local address. It cannot use it while XDP takes all packets.
    let is_in_use = |(address, _): &(IpAddr, u8)| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(address) => wants_ipv6(open) && !address.is_unicast_link_local(),
    };
    if let Some((address, bits)) = addresses(&link)?.iter().find(|address| is_in_use(address)) {
        let text = format!(
            "`{name}` has the address {address}/{bits} in the kernel, and both stacks would answer; use another device, \
             share this one (--share), or remove it: ip address del {address}/{bits} dev {name}"
        );
        return refuse(NetErrorKind::InUse, text);
    }
    if !link.is_up() {
        switch_on(link.index).map_err(|error| NetError::system(&format!("switch `{name}` on"), error))?;
    }
    Ok(link)
}

fn ethernet(namespace: &Namespace, name: &str) -> Result<Link, NetError> {
    let link = device::find(namespace, name)?.link;
    if link.is_loopback() || link.link_type() != Some(1) || link.address.0.len() != 6 {
        return Err(NetError::new(NetErrorKind::Request, format!("`{name}` is no Ethernet device; use one that is")));
    }
    Ok(link)
}

fn addresses(link: &Link) -> Result<Vec<(IpAddr, u8)>, NetError> {
    let addresses = driver::address::list(link.index);
    addresses.map_err(|error| NetError::system(&format!("list addresses of `{}`", link.name), error))
}

/// A device that the host keeps, with its addresses. Does not change it.
fn shared(namespace: &Namespace, name: &str, left: Option<Left>) -> Result<Opened, NetError> {
    let link = ethernet(namespace, name)?;
    let refuse = |kind, text: String| Err(NetError::new(kind, text));
    if !link.is_up() {
        return refuse(NetErrorKind::Request, format!("`{name}` is down; switch it on: ip link set {name} up"));
    }
    let mut addresses = addresses(&link)?;
    addresses.retain(|(address, _)| address.is_ipv4() && is_host(*address));
    if addresses.is_empty() {
        let text = format!("`{name}` has no IPv4 address of the host to share; give it one, or use --addr instead");
        return refuse(NetErrorKind::Request, text);
    }
    let needs = |why: &dyn fmt::Display| format!("to share `{name}` with the host takes XDP: {why}");
    let program = ShareProgram::new(mac(&link), link.receive_queues);
    let program = program.map_err(|error| NetError::new(NetErrorKind::System, needs(&error)))?;
    let [loaded, sockets] =
        sharing::handles(&program).map_err(|error| NetError::system("have handles of a program", error))?;
    let held = left.and_then(|left| left.handle);
    let is_attached = held.is_none();
    let loaded = af_xdp::Program { program: loaded, sockets, link: held };
    let opened = by_xdp(namespace, &link, false, Some(loaded));
    let opened = opened.map_err(|error| NetError::new(error.kind, needs(&error)))?;
    let how = format!("{}, shared with the host", opened.how);
    Ok(Opened { how, share: Some(SharedDevice { program, index: link.index, addresses, is_attached }), ..opened })
}

fn switch_on(index: u32) -> std::io::Result<()> {
    Netlink::route(0)?.change(index, &Change { up: Some(true), ..Change::default() })
}

fn mac(link: &Link) -> [u8; 6] {
    link.address.0.first_chunk().copied().unwrap_or_default()
}

/// Whether the other ends of the link send unfinished checksums, since there is no real device.
fn leaves_checksums(link: &Link) -> bool {
    link.kind.is_some()
}

/// `all_groups`: receive frames for groups. `program`: selects frames; `None`: takes all.
fn by_xdp(
    namespace: &Namespace,
    link: &Link,
    all_groups: bool,
    program: Option<af_xdp::Program>,
) -> Result<Opened, NetError> {
    let is_whole = program.is_none();
    // 3 MiB: a user may lock 8 by default.
    let chunk_bytes = if link.mtu + FRAME_SLACK <= 2048 { 2048 } else { 4096 };
    let options = af_xdp::Options {
        receive_chunks: 1024,
        transmit_chunks: 512,
        chunk_bytes,
        all_groups,
        program,
        ..Default::default()
    };
    let opened = af_xdp::Device::open(namespace, &link.name, options)?;
    let mode = opened.mode;
    // Without a program, the host would answer packets of flows.
    let handle = if is_whole { None } else { Some(copy(opened.attachment())?) };
    let Ok([queue]) = <[af_xdp::Queue; 1]>::try_from(opened.queues) else {
        let text = format!(
            "`{0}` receives by several queues, and one is read; set one: ethtool -L {0} combined 1{1}",
            link.name,
            if is_whole { ", or use --via af_packet" } else { "" }
        );
        return Err(NetError::new(NetErrorKind::Request, text));
    };
    Ok(Opened {
        receive: Box::new(queue.receiver),
        transmit: Box::new(queue.sender),
        mac: mac(link),
        mtu: link.mtu,
        via: "af_xdp",
        how: format!("an AF_XDP socket ({mode:?})").to_lowercase().replacen("an af_xdp", "an AF_XDP", 1),
        unfinished_checksums: leaves_checksums(link),
        share: None,
        handle,
    })
}

/// `ipv6`: the interface will have an IPv6 address.
fn by_packet_socket(namespace: &Namespace, link: &Link, ipv6: bool) -> Result<Opened, NetError> {
    if ipv6 && link.has_ipv6 {
        let text = format!(
            "the kernel speaks IPv6 on `{0}`, too, and a packet socket leaves it all packets: both stacks would answer; switch the \
             kernel's off: sysctl -w net.ipv6.conf.{0}.disable_ipv6=1",
            link.name
        );
        return Err(NetError::new(NetErrorKind::InUse, text));
    }
    // The kernel would join packets of a flow into one longer than a frame. A device may refuse to switch that off.
    let offloads = Offloads::NONE;
    let _ = namespace.enter(|| driver::ethtool::Ethtool::new()?.set_offloads(&link.name, offloads));
    let options = af_packet::Options {
        direction: af_packet::Direction::In,
        at_once: true,
        all_groups: ipv6,
        // A peer that leaves the cutting to its device sends frames longer than a flow's buffers.
        segment_sizes: true,
        ..af_packet::Options::default()
    };
    Ok(Opened {
        receive: Box::new(af_packet::Receiver::open(namespace, &link.name, &options)?),
        transmit: Box::new(af_packet::Sender::open(namespace, &link.name, af_packet::SenderOptions::default())?),
        mac: mac(link),
        mtu: link.mtu,
        via: "af_packet",
        how: "a packet socket".into(),
        unfinished_checksums: leaves_checksums(link),
        share: None,
        handle: None,
    })
}

/// A tap device of this name, whose other end is the kernel's stack. This end has its own hardware address.
fn by_tap(namespace: &Namespace, name: &str, left: Option<Left>) -> Result<Opened, NetError> {
    let (mac, file) = left.map_or_else(|| (random_mac(name), None), |left| (left.mac, left.handle));
    let opened = match file {
        Some(file) => tuntap::TunTap::of_file(namespace, name, file)?,
        None => {
            let options = tuntap::Options { name: name.into(), ..tuntap::Options::default() };
            let opened = tuntap::TunTap::open(namespace, &options)?;
            switch_on(opened.device.index).map_err(|error| NetError::system(&format!("switch `{name}` on"), error))?;
            opened
        }
    };
    let Some((receive, transmit)) = opened.queues.into_iter().next() else {
        return Err(NetError::new(NetErrorKind::System, format!("`{name}` came without a queue")));
    };
    let handle = Some(copy(receive.file())?);
    Ok(Opened {
        receive: Box::new(receive),
        transmit: Box::new(transmit),
        mac,
        mtu: opened.device.mtu,
        via: "tuntap",
        how: "a tap device".into(),
        unfinished_checksums: true,
        share: None,
        handle,
    })
}

/// An interface without a device, for the flows on it. It needs no rights.
fn by_loopback(namespace: &Namespace, name: &str, left: Option<Left>) -> Result<Opened, NetError> {
    let refuse = |kind, text: String| Err(NetError::new(kind, text));
    // The kernel's rule for names of devices.
    let is_name = (1..=15).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    if !is_name {
        let text = "the name of an interface has 1 to 15 characters of ASCII, without spaces and `/`";
        return refuse(NetErrorKind::Request, text.into());
    }
    if device::find(namespace, name).is_ok() {
        let text = format!("`{name}` is a device of the host; choose another name for an interface without a device");
        return refuse(NetErrorKind::InUse, text);
    }
    let end = driver::loopback::alone().map_err(|error| NetError::system("make an eventfd", error))?;
    Ok(Opened {
        receive: Box::new(end.receiver),
        transmit: Box::new(end.sender),
        mac: left.map_or_else(|| random_mac(name), |left| left.mac),
        mtu: LOOPBACK_MTU,
        via: LOOPBACK,
        how: "no device: its flows reach each other".into(),
        unfinished_checksums: false,
        share: None,
        handle: None,
    })
}

/// A random hardware address, locally administered, of one host: the hasher's keys are random.
fn random_mac(name: &str) -> [u8; 6] {
    let [a, b, c, d, e, ..] = RandomState::new().hash_one(name).to_be_bytes();
    [2, a, b, c, d, e]
}
