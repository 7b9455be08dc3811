//! Ethernet II (RFC 894): the device's address as source, and room for the next hop's.
//!
//! The driver knows the next hop, so the destination stays zero unless a block above names a station, as `arp` does.

use packet::LinkType;
use packet::ethernet::Packet;
use request::Diagnostic;

use crate::block::{Block, Step};
use crate::facts::Facts;
use crate::kind::{Form, Given, Kind, Layer, Param, Site, Value};
use crate::outcome::{Discard, SendError, Unsupported};
use crate::packets::{Incoming, Outgoing};

/// The kind of this block.
pub static KIND: Kind = Kind {
    name: "ethernet",
    help: "frames of one device (RFC 894)",
    layer: Layer::Link,
    is_top: false,
    below: None,
    link: Some(LinkType::ETHERNET),
    params: &[Param { key: "device", is_main: true, is_needed: false, form: Form::Text, help: "name of a device" }],
    complete: Some(complete),
    build,
};

/// Fills in the flow's device. The text may name only that device.
fn complete(given: &mut Given, facts: &Facts) -> Result<(), Diagnostic> {
    match given.text("device") {
        Some(device) if device != facts.device => {
            Err(Diagnostic::new(format!("this flow does not run on `{device}`"), given.span_of("device"))
                .with_label(format!("the route leads to {}", facts.device))
                .with_help("leave the device out"))
        }
        _ => {
            given.fill("device", Value::Text(facts.device.clone()));
            Ok(())
        }
    }
}

fn build(_given: &Given, site: &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic> {
    Ok(Box::new(Ethernet { mac: site.facts.mac, before: site.facts.mac }))
}

/// The group bit of a link address: "several stations".
pub(super) const GROUP_BIT: u8 = 1;

/// One device's frames.
#[derive(Debug)]
pub struct Ethernet {
    mac: [u8; 6],
    /// The address before the last change, for frames already on their way.
    before: [u8; 6],
}

impl Block for Ethernet {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn header_bytes(&self) -> usize {
        Packet::HEADER_BYTES
    }

    fn down(&mut self, _now: u64, packet: &mut Outgoing<'_>) -> Result<Step, SendError> {
        let meta = packet.meta;
        let header = packet.push::<{ Packet::HEADER_BYTES }>()?;
        header[..6].copy_from_slice(&meta.station);
        header[6..12].copy_from_slice(&self.mac);
        header[12..].copy_from_slice(&meta.ether_type.to_be_bytes());
        Ok(Step::Pass)
    }

    fn up(&mut self, _now: u64, packet: &mut Incoming<'_>) -> Result<Step, Discard> {
        let read = Packet::new_checked(packet.bytes()).map_err(|_| Discard::EthernetTruncated)?;
        let [first, ..] = read.destination();
        let to_many = first & GROUP_BIT != 0;
        if !to_many && ![self.mac, self.before].contains(&read.destination()) {
            return Err(Discard::OtherStation);
        }
        packet.meta.to_many = to_many;
        packet.meta.station = read.source();
        packet.meta.ether_type = read.ether_type();
        packet.crop(Packet::HEADER_BYTES, usize::MAX);
        Ok(Step::Pass)
    }

    fn facts_changed(&mut self, _now: u64, facts: &Facts) {
        if facts.mac != self.mac {
            (self.mac, self.before) = (facts.mac, self.mac);
        }
    }

    fn export(&self) -> Result<Vec<u8>, Unsupported> {
        Err(Unsupported::NoState)
    }
}
