//! One evaluation: the rules of a packet, those of the news of its flow, and the records of the rules that match.

use super::connection::Connection;
use super::frame::Parsed;
use super::inspector::{Inspector, Way3};
use super::row::{self, Alert, Seen};
use filter::prelude::*;
use filters::parts::flow_table::Slot;
use filters::parts::origin::facts_of;
use packet::Flow;
use packet::encapsulation::Vlans;
use rules::engine::{Piece, Verdict};
use rules::{Engine, Packet};

impl Inspector {
    /// Inspects a packet and the news of its flow, and writes alert records.
    pub(super) fn evaluate(
        &mut self,
        slot: Option<Slot>,
        packet: Option<(&Parsed, Way3)>,
        frame: &Descriptor,
        vlans: Vlans,
        cx: &mut Context<'_>,
    ) -> Verdict {
        let Inspector { engine, flows, row, is_inline, shows_bytes, odd, .. } = self;
        engine.begin();
        let mut connection = slot.and_then(|slot| flows.get_mut(slot)).map(|connection| &mut **connection);
        let gap = connection.as_mut().is_some_and(|connection| std::mem::take(&mut connection.gap));
        if gap {
            odd.add("reassembly_seq_gap");
        }
        if let Some((parsed, _)) = packet {
            odd.0.extend_from_slice(&parsed.events);
        }
        let rings = &*cx.rings;
        let own = packet.map(|(parsed, way)| Packet {
            events: &odd.0,
            to_server: way.to_server,
            established: way.established,
            in_stream: way.in_stream,
            ..parsed.packet(rings.bytes(frame), frame.time)
        });
        let subject = Subject { own, client: connection.as_ref().map(|connection| connection.flow), time: frame.time };
        if let Some(packet) = &own {
            inspect_packet(engine, packet, connection.as_deref_mut());
        }
        if let Some(connection) = connection.as_deref_mut() {
            inspect_news(engine, &subject, connection, *is_inline);
        }
        if !engine.has_found() {
            if let Some(connection) = connection {
                connection.have_seen();
            }
            return Verdict::Pass;
        }
        let parsed = packet.map(|(parsed, _)| parsed);
        let mut alerts =
            Alerts { frame, vlans, parsed, is_inline: *is_inline, shows_bytes: *shows_bytes, row, count: 0 };
        let mut out = std::mem::take(cx.out);
        let verdict = alerts.write(engine, &subject, connection, cx, &mut out);
        *cx.out = out;
        if alerts.count > 0 {
            cx.count("alerts", alerts.count);
        }
        verdict
    }
}

/// What the rules look at: a packet, or news of a flow without one.
#[derive(Clone, Copy)]
struct Subject<'a> {
    own: Option<Packet<'a>>,
    /// The flow, from the client to the server. `None`: the packet has none.
    client: Option<Flow>,
    time: u64,
}

impl<'a> Subject<'a> {
    /// The packet, if it goes this way. News without a packet of its own gets an empty packet.
    fn packet(&self, to_server: bool) -> Packet<'a> {
        let Subject { own, client, time } = *self;
        match own {
            Some(packet) if packet.to_server == to_server => packet,
            _ => Packet {
                flow: client.map(|flow| if to_server { flow } else { flow.reversed() }),
                version: own
                    .map_or(client.map_or(0, |flow| if flow.source.is_ipv4() { 4 } else { 6 }), |it| it.version),
                time,
                link: &[],
                network: &[],
                transport: &[],
                payload: &[],
                payload_len: 0,
                tcp: None,
                icmp: None,
                to_server,
                established: own.is_none_or(|packet| packet.established),
                in_stream: true,
                fragment: false,
                events: &[],
            },
        }
    }
}

/// Applies the rules of packets, with the news of the packet's stream.
#[inline]
fn inspect_packet(engine: &mut Engine, packet: &Packet<'_>, connection: Option<&mut Connection>) {
    let Some(Connection { state, sides, .. }) = connection else { return engine.packet(packet, None, None) };
    let side = &mut sides[usize::from(!packet.to_server)];
    let piece = side.is_fresh().then(|| side.piece());
    let packet = Packet { established: packet.established || piece.is_some(), ..*packet };
    engine.packet(&packet, Some(state), piece);
}

/// Applies the rules of streams that no packet of this way showed, and those of transactions that changed.
#[inline]
fn inspect_news(engine: &mut Engine, subject: &Subject<'_>, connection: &mut Connection, is_inline: bool) {
    let own = subject.own;
    let Connection { state, transactions, sides, .. } = connection;
    let mut changed = std::mem::take(&mut transactions.changed);
    let mut grown = std::mem::take(&mut transactions.grown);
    // A full inspection includes the new bytes. Without blocking, the next full inspection is soon enough.
    grown.retain(|one| is_inline && !changed.contains(one));
    for (side, to_server) in [(0, true), (1, false)] {
        let shown = own.is_some_and(|packet| packet.to_server == to_server);
        if sides[side].is_fresh() && !shown {
            let packet = Packet { established: true, ..subject.packet(to_server) };
            engine.stream(&packet, state, sides[side].piece());
        }
    }
    let all = changed.iter().map(|one| (one, true)).chain(grown.iter().map(|one| (one, false)));
    for ((id, to_server), is_all) in all {
        let Some(one) = transactions.get(*id) else { continue };
        let packet = Packet { established: true, ..subject.packet(*to_server) };
        let packet = if own.is_some_and(|own| own.tcp.is_none()) { subject.packet(*to_server) } else { packet };
        let raw = match own {
            Some(own) if own.tcp.is_none() => Piece { bytes: own.payload, start: 0, seen: 0, grows: false },
            _ => sides[usize::from(!to_server)].piece(),
        };
        match is_all {
            true => engine.transaction(&packet, Some(state), one, *to_server, Some(raw)),
            false => engine.body(&packet, Some(state), one, *to_server, Some(raw)),
        }
    }
    changed.clear();
    grown.clear();
    (transactions.changed, transactions.grown) = (changed, grown);
}

/// What alert records of one evaluation have in common.
struct Alerts<'a> {
    frame: &'a Descriptor,
    vlans: Vlans,
    parsed: Option<&'a Parsed>,
    is_inline: bool,
    shows_bytes: bool,
    row: &'a mut RowWriter,
    /// Records written.
    count: u64,
}

impl Alerts<'_> {
    /// Writes a record for each rule that matches, as a block behind `out`.
    fn write(
        &mut self,
        engine: &mut Engine,
        subject: &Subject<'_>,
        connection: Option<&mut Connection>,
        cx: &Context<'_>,
        out: &mut Vec<Descriptor>,
    ) -> Verdict {
        let Alerts { frame, vlans, parsed, is_inline, shows_bytes, row, count } = self;
        let rings = &*cx.rings;
        let whole = subject.own.unwrap_or_else(|| subject.packet(true));
        let tunnels = facts_of(rings, frame, *vlans).1;
        // Rules change a copy of the flow's state, because alerts borrow the flow.
        let mut state = connection.as_ref().map(|connection| connection.state.clone());
        let traffic: Vec<String> = state.iter().flat_map(|state| engine.traffic(state)).map(str::to_string).collect();
        let verdict = engine.finish(&whole, state.as_mut(), |rule, found| {
            let connection = connection.as_deref();
            // A packet match belongs to the newest transaction.
            let transaction = connection.and_then(|it| match found.transaction {
                Some(id) => it.transactions.find(id),
                None => it.transactions.last(),
            });
            let seen = shows_bytes.then(|| match (subject.own, connection) {
                (Some(own), _) if !found.stream => Seen { frame: rings.bytes(frame), payload: own.payload },
                (_, Some(connection)) => Seen {
                    frame: subject.own.map_or(&[], |_| rings.bytes(frame)),
                    payload: connection.sides[usize::from(!found.to_server)].piece().bytes,
                },
                (_, None) => Seen { frame: rings.bytes(frame), payload: &[] },
            });
            let alert = Alert {
                rule,
                found,
                time: frame.time,
                flow: subject.own.unwrap_or_else(|| subject.packet(found.to_server)).flow,
                vlans: *vlans,
                tunnels: tunnels.as_ref(),
                parsed: *parsed,
                packet: subject.own.as_ref(),
                connection,
                transaction,
                is_inline: *is_inline,
                traffic: &traffic,
                seen,
            };
            row::write(row, &alert);
            if let Some(mut block) = rings.append_copy(cx.own, &[row.row()]) {
                block.time = frame.time;
                block.set_flags(Flags::FIRST.with(Flags::LAST));
                out.push(block);
                *count += 1;
            }
        });
        if let Some((connection, state)) = connection.zip(state) {
            connection.state = state;
            connection.have_seen();
        }
        verdict
    }
}
