//! The counters of an interface. Each received frame ends in exactly one [`End`]; an [`Event`] counts something else.

/// Makes an enum whose values are counters with names.
macro_rules! counters {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl $name {
            /// All of them, in the order of their counters.
            pub(crate) const ALL: &[$name] = &[$($name::$value,)*];

            /// For people and programs.
            pub(crate) const fn name(self) -> &'static str {
                match self { $($name::$value => $text,)* }
            }
        }
    };
}

counters! {
    /// The end of a frame that the device received, or that a flow sent to this host.
    End {
        /// It is in a flow's channel.
        Delivered = "ended.delivered",
        /// Its flow had no buffer for it; the flow counts why.
        FlowDropped = "ended.dropped_by_flow",
        /// Its flow was closed because its application broke the channel.
        Faulted = "ended.flow_faulted",
        Outgoing = "ended.sent_by_host",
        Short = "ended.short",
        /// A super-frame of a kind that cannot be cut.
        Uncut = "ended.super_frame",
        Elsewhere = "ended.other_host",
        Multicast = "ended.multicast",
        Vlan = "ended.vlan",
        /// The sender's hardware address is a group, or this interface's own.
        BadSender = "ended.bad_hardware_source",
        OtherProtocol = "ended.other_ether_type",
        DhcpHeard = "ended.dhcp",
        /// For another client or exchange, or invalid.
        DhcpIgnored = "ended.dhcp_ignored",
        ArpMalformed = "ended.arp_malformed",
        ArpAnswered = "ended.arp_answered",
        ArpLimited = "ended.arp_over_limit",
        ArpLearnt = "ended.arp_learnt",
        ArpIgnored = "ended.arp_ignored",
        /// Another host says that it has our address.
        ArpConflict = "ended.arp_conflict",
        Malformed = "ended.ipv4_malformed",
        Checksum = "ended.ipv4_checksum",
        BadSource = "ended.ipv4_bad_source",
        /// From our own address (RFC 1122 3.2.1.3; the LAND attack).
        Land = "ended.ipv4_own_source",
        NotOurs = "ended.ipv4_other_address",
        /// A broadcast frame with a packet for one host (RFC 1122 3.3.6).
        FalseBroadcast = "ended.ipv4_false_broadcast",
        Ipv6Malformed = "ended.ipv6_malformed",
        Ipv6BadSource = "ended.ipv6_bad_source",
        /// From our own address.
        Ipv6Land = "ended.ipv6_own_source",
        Ipv6NotOurs = "ended.ipv6_other_address",
        /// A frame for several stations with a packet for one host.
        Ipv6FalseMulticast = "ended.ipv6_false_multicast",
        /// An extension header is cut, in the wrong place, or there are too many.
        Ipv6Extension = "ended.ipv6_extension_header",
        /// An unknown option. Its code tells receivers to drop the packet.
        Ipv6Option = "ended.ipv6_option",
        Ipv6Routing = "ended.ipv6_routing_header",
        FragmentKept = "ended.fragment_kept",
        FragmentRepeated = "ended.fragment_repeated",
        FragmentTiny = "ended.fragment_tiny",
        FragmentMalformed = "ended.fragment_malformed",
        FragmentOverlap = "ended.fragment_overlap",
        FragmentQuota = "ended.fragment_over_quota",
        FragmentLate = "ended.fragment_of_dropped_datagram",
        OtherTransport = "ended.other_transport",
        UdpMalformed = "ended.udp_malformed",
        ClosedAnswered = "ended.udp_closed_port_answered",
        ClosedSilent = "ended.udp_closed_port",
        TcpMalformed = "ended.tcp_malformed",
        /// No flow has it, and its checksum is wrong. The stacks of flows check their own.
        TcpChecksum = "ended.tcp_checksum",
        TcpSynAnswered = "ended.tcp_syn_answered",
        TcpSynLimited = "ended.tcp_syn_not_answered",
        /// It opened a connection, and lies in its channel.
        TcpOpened = "ended.tcp_connection_opened",
        /// Its listener had no place for it; the listener counts why.
        ListenerDropped = "ended.dropped_by_listener",
        TcpClosedAnswered = "ended.tcp_closed_port_answered",
        TcpClosedSilent = "ended.tcp_closed_port",
        /// It belongs to a recently ended connection.
        TcpEndedAnswered = "ended.tcp_after_end_answered",
        TcpEndedSilent = "ended.tcp_after_end",
        /// On a shared device: no flow has it. The host answers for its own packets.
        NoFlow = "ended.no_flow",
        IcmpMalformed = "ended.icmp_malformed",
        EchoAnswered = "ended.icmp_echo_answered",
        EchoLimited = "ended.icmp_echo_not_answered",
        IcmpReported = "ended.icmp_error_reported",
        IcmpStray = "ended.icmp_error_of_no_flow",
        IcmpOther = "ended.icmp_other",
        /// From beyond a router, fragmented, or with wrong fields or options.
        NdpMalformed = "ended.ndp_malformed",
        NdpAnswered = "ended.ndp_answered",
        NdpLimited = "ended.ndp_over_limit",
        NdpLearnt = "ended.ndp_learnt",
        NdpIgnored = "ended.ndp_ignored",
        /// Another host says that it has our address.
        NdpConflict = "ended.ndp_conflict",
        /// Ignored.
        RouterAdvertisement = "ended.ndp_router_advertisement",
    }
}

counters! {
    /// Other counted events.
    Event {
        FragmentsJoined = "fragments.joined",
        SuperFramesCut = "super_frames.cut",
        FragmentsExpired = "fragments.expired_datagrams",
        FragmentsDropped = "fragments.dropped_datagrams",
        FlowFaults = "flows.faults",
        FlowsOpened = "flows.opened",
        FlowsClosed = "flows.closed",
        FlowsRefused = "flows.refused",
        ListenersOpened = "listeners.opened",
        ListenersClosed = "listeners.closed",
        ResetsSent = "sent.tcp_resets_of_flows",
        ResetsDropped = "answers.tcp_resets_dropped",
        Traces = "flows.traces_begun",
        LastDropped = "flows.last_packets_dropped",
        /// Their address was removed, and did not come back in time.
        FlowsWithoutAddress = "flows.ended_without_address",
        ArpAsked = "sent.arp_requests",
        ArpAnnounced = "sent.arp_announcements",
        NdpAsked = "sent.neighbour_solicitations",
        NdpAnnounced = "sent.neighbour_announcements",
        DhcpSent = "sent.dhcp",
        DhcpLeases = "dhcp.leases",
        DhcpLost = "dhcp.leases_lost",
        DhcpDeclined = "dhcp.declined",
        HostAsked = "host.asked_for_next_hops",
        NeighboursSilent = "neighbours.silent",
        Answers = "sent.answers",
        AnswersDropped = "answers.dropped",
        NoRoom = "device.no_room",
        Turns = "thread.turns",
        Sleeps = "thread.sleeps",
    }
}

counters! {
    /// Why a listener lost a segment that would have opened a connection, or a connection that waited.
    ListenerDrop {
        QueueFull = "queue is full",
        Quota = "quota of its user is reached",
        Overload = "more than its share of receive work",
        InUse = "address in use",
        NoShare = "no share of the wire left",
        NoChannel = "no memory for a channel",
        NotAccepted = "not accepted in time",
    }
}

/// The counters of an interface.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Frames received from the device.
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// Frames that own flows sent to own addresses.
    pub(crate) looped: u64,
    /// Frames that the device accepted.
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    /// Receive work that is charged to no flow, ns.
    pub(crate) unclaimed_ns: u64,
    ends: [u64; End::ALL.len()],
    events: [u64; Event::ALL.len()],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            received: 0,
            received_bytes: 0,
            looped: 0,
            sent: 0,
            sent_bytes: 0,
            unclaimed_ns: 0,
            ends: [0; End::ALL.len()],
            events: [0; Event::ALL.len()],
        }
    }
}

impl Counters {
    /// A frame ended this way.
    pub(crate) fn end(&mut self, end: End) {
        self.ends[end as usize] += 1;
    }

    /// Counts `count` events.
    pub(crate) fn events(&mut self, event: Event, count: u64) {
        self.events[event as usize] += count;
    }

    /// Counts an event.
    pub(crate) fn event(&mut self, event: Event) {
        self.events[event as usize] += 1;
    }

    /// All counters by name. `received + looped` is the sum of those that begin with `ended.`.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        let head = [
            ("received", self.received),
            ("received_bytes", self.received_bytes),
            ("looped", self.looped),
            ("sent", self.sent),
            ("sent_bytes", self.sent_bytes),
            ("receive_ns_of_no_flow", self.unclaimed_ns),
        ];
        let ends = End::ALL.iter().map(|&end| (end.name(), self.ends[end as usize]));
        let events = Event::ALL.iter().map(|&event| (event.name(), self.events[event as usize]));
        head.into_iter().chain(ends).chain(events).map(|(name, value)| (name.into(), value)).collect()
    }
}
