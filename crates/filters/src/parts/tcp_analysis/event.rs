//! Names of the events.

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Retransmission,
    FastRetransmission,
    SpuriousRetransmission,
    OutOfOrder,
    LostSegment,
    AckLostSegment,
    DuplicateAck,
    WindowUpdate,
    WindowFull,
    ZeroWindow,
    ZeroWindowProbe,
    ZeroWindowProbeAck,
    KeepAlive,
    KeepAliveAck,
    ReusedPorts,
}

impl Event {
    /// All events, in the order of the variants, each with the field of its name.
    pub const ALL: [(Event, &str); 15] = [
        (Event::Retransmission, "tcp.analysis.retransmission"),
        (Event::FastRetransmission, "tcp.analysis.fast_retransmission"),
        (Event::SpuriousRetransmission, "tcp.analysis.spurious_retransmission"),
        (Event::OutOfOrder, "tcp.analysis.out_of_order"),
        (Event::LostSegment, "tcp.analysis.lost_segment"),
        (Event::AckLostSegment, "tcp.analysis.ack_lost_segment"),
        (Event::DuplicateAck, "tcp.analysis.duplicate_ack"),
        (Event::WindowUpdate, "tcp.analysis.window_update"),
        (Event::WindowFull, "tcp.analysis.window_full"),
        (Event::ZeroWindow, "tcp.analysis.zero_window"),
        (Event::ZeroWindowProbe, "tcp.analysis.zero_window_probe"),
        (Event::ZeroWindowProbeAck, "tcp.analysis.zero_window_probe_ack"),
        (Event::KeepAlive, "tcp.analysis.keep_alive"),
        (Event::KeepAliveAck, "tcp.analysis.keep_alive_ack"),
        (Event::ReusedPorts, "tcp.analysis.reused_ports"),
    ];
}

/// Several events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Events(u16);

impl Events {
    pub fn add(&mut self, event: Event) {
        self.0 |= 1 << event as u16;
    }

    pub fn has(self, event: Event) -> bool {
        self.0 & 1 << event as u16 != 0
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The fields of these events.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Event::ALL.into_iter().filter(move |(event, _)| self.has(*event)).map(|(_, name)| name)
    }
}
