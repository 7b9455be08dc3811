//! What `port`, `sourceport` and `destport` share. They differ in the ports they test and in the class they set.

use crate::parts::numbers::{Meaning, Numbers};
use crate::parts::select::{self, FrameTest, Packet, StreamTest, View, of_frames_or_streams};
use filter::prelude::*;
use packet::flow::{Flow, has_ports};
use packet::frame::protocol;
use packet::malformed::Malformed;
use packet::tunnel;
use program::predicate::{Ports, Predicate};

#[derive(Clone, Copy)]
pub(crate) enum Which {
    Either,
    Source,
    Destination,
}

const PORT: Meaning = Meaning { what: "a port", max: 65_535, names: &[] };

/// Makes one of the three filters; the parameter `port` gives the wanted ports.
pub(crate) fn make(which: Which, params: &Params, env: &Env) -> Result<Instance, ParamError> {
    let wanted = Numbers::from_param(params, "port", PORT)?;
    of_frames_or_streams(PortTest { which, wanted }, env)
}

/// Makes one of the three for the packets of a shared device.
pub(crate) fn on_device(which: Which, params: &Params) -> Result<Box<dyn Decides>, ParamError> {
    Ok(select::on_device(PortTest { which, wanted: Numbers::from_param(params, "port", PORT)? }))
}

/// The pre-filter for packets that one of the three wants.
pub(crate) fn pre_filter(which: Which, params: &Params) -> Option<Predicate> {
    let ranges = Numbers::ranges_of(params, "port", PORT)?.unwrap_or_else(|| vec![(0, u16::MAX)]);
    let source = matches!(which, Which::Either | Which::Source);
    let destination = matches!(which, Which::Either | Which::Destination);
    Some(Predicate::Ports(Ports { source, destination, ranges }))
}

struct PortTest {
    which: Which,
    wanted: Option<Numbers>,
}

impl PortTest {
    #[inline]
    fn wants(&self, source: u16, destination: u16) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        let (source, destination) = (wanted.has(source.into()), wanted.has(destination.into()));
        match self.which {
            Which::Either => source | destination,
            Which::Source => source,
            Which::Destination => destination,
        }
    }

    #[inline]
    fn class(&self, source: u16, destination: u16) -> Class {
        Class(match self.which {
            Which::Either => u32::from(source) << 16 | u32::from(destination),
            Which::Source => source.into(),
            Which::Destination => destination.into(),
        })
    }
}

impl FrameTest for PortTest {
    #[inline]
    fn frame(&self, view: View<'_>, class: &mut Class) -> Result<bool, Malformed> {
        let Some((source, destination)) = of(&view.packet()?)? else { return Ok(false) };
        *class = self.class(source, destination);
        Ok(self.wants(source, destination))
    }

    #[inline]
    fn by_ports(&self, ports: u32) -> Option<Option<Class>> {
        let (source, destination) = ((ports >> 16) as u16, ports as u16);
        Some(self.wants(source, destination).then(|| self.class(source, destination)))
    }
}

impl StreamTest for PortTest {
    fn stream(&self, flow: &Flow) -> bool {
        has_ports(flow.protocol) && self.wants(flow.source_port, flow.target_port)
    }
}

/// Source and destination port. `None`: the packet has no ports. Error: it may have ports, but they cannot be read.
#[inline]
fn of(packet: &Packet<'_>) -> Result<Option<(u16, u16)>, Malformed> {
    if !has_ports(packet.protocol) {
        return tunnel::not_opened_of(packet.protocol).map_or(Ok(None), Err);
    }
    if packet.later_fragment {
        return Err(Malformed::LaterFragment);
    }
    match *packet.payload {
        [a, b, c, d, ..] => Ok(Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))),
        _ if packet.protocol == protocol::TCP => Err(Malformed::TruncatedTcp),
        _ if packet.protocol == protocol::UDP => Err(Malformed::TruncatedUdp),
        _ => Ok(None),
    }
}
