//! Link types: the number in a capture file that says how to read the first bytes of a frame, and its libpcap name.
//! Does not parse frames: see `encapsulation.rs`.
//!
//! Numbers are LINKTYPE values (<https://www.tcpdump.org/linktypes.html>), which equal libpcap's DLT values except for
//! a handful. [`LinkType::dlt`] gives the other numbering, which `pcap_compile` wants on Linux.

use std::fmt;

/// A link type, with the number used in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u16);

impl LinkType {
    /// BSD loopback: a 4-byte address family in the byte order of the capturing host.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// Token Ring.
    pub const IEEE802: Self = Self(6);
    /// ARCNET, as BSD captures it.
    pub const ARCNET: Self = Self(7);
    /// SLIP with a direction byte and a header in front.
    pub const SLIP: Self = Self(8);
    /// PPP, with or without HDLC address and control bytes.
    pub const PPP: Self = Self(9);
    /// FDDI.
    pub const FDDI: Self = Self(10);
    /// PPP in HDLC-like framing (RFC 1662), or Cisco PPP with HDLC framing.
    pub const PPP_SERIAL: Self = Self(50);
    /// PPP over Ethernet, beginning at the PPPoE header.
    pub const PPP_ETHER: Self = Self(51);
    /// LLC/SNAP over ATM (RFC 2684).
    pub const ATM_RFC1483: Self = Self(100);
    /// IPv4 or IPv6, by the first nibble.
    pub const RAW: Self = Self(101);
    /// SLIP, as BSD/OS captures it.
    pub const SLIP_BSDOS: Self = Self(102);
    /// Cisco HDLC.
    pub const C_HDLC: Self = Self(104);
    /// IEEE 802.11.
    pub const IEEE802_11: Self = Self(105);
    /// Frame Relay (RFC 2427).
    pub const FRELAY: Self = Self(107);
    /// OpenBSD loopback: like [`Self::NULL`], but in network byte order.
    pub const LOOP: Self = Self(108);
    /// Packets that OpenBSD has decrypted from IPsec.
    pub const ENC: Self = Self(109);
    /// Linux cooked capture, version 1.
    pub const LINUX_SLL: Self = Self(113);
    /// Packets logged by OpenBSD's packet filter.
    pub const PFLOG: Self = Self(117);
    /// IEEE 802.11 behind a Prism header.
    pub const PRISM_HEADER: Self = Self(119);
    /// IP over Fibre Channel (RFC 2625).
    pub const IP_OVER_FC: Self = Self(122);
    /// ATM of SunATM devices.
    pub const SUNATM: Self = Self(123);
    /// IEEE 802.11 behind a radiotap header.
    pub const IEEE802_11_RADIO: Self = Self(127);
    /// ARCNET, as Linux captures it.
    pub const ARCNET_LINUX: Self = Self(129);
    /// IP over FireWire.
    pub const APPLE_IP_OVER_IEEE1394: Self = Self(138);
    /// IEEE 802.11 behind an AVS header.
    pub const IEEE802_11_RADIO_AVS: Self = Self(163);
    /// PPP from pppd, with a direction byte in place of the address byte.
    pub const PPP_PPPD: Self = Self(166);
    /// Any link, behind a per-packet header of fields.
    pub const PPI: Self = Self(192);
    /// PPP behind a direction byte.
    pub const PPP_WITH_DIRECTION: Self = Self(204);
    /// Cisco HDLC behind a direction byte.
    pub const C_HDLC_WITH_DIRECTION: Self = Self(205);
    /// Frame Relay behind a direction byte.
    pub const FRELAY_WITH_DIRECTION: Self = Self(206);
    /// An MPLS label stack.
    pub const MPLS: Self = Self(219);
    /// IPv4.
    pub const IPV4: Self = Self(228);
    /// IPv6.
    pub const IPV6: Self = Self(229);
    /// Packets logged by Linux's packet filter.
    pub const NFLOG: Self = Self(239);
    /// Ethernet behind a netANALYZER header.
    pub const NETANALYZER: Self = Self(240);
    /// As [`Self::NETANALYZER`], with the Ethernet preamble.
    pub const NETANALYZER_TRANSPARENT: Self = Self(241);
    /// IP over InfiniBand (RFC 4391).
    pub const IPOIB: Self = Self(242);
    /// Any link, behind a header from macOS.
    pub const PKTAP: Self = Self(258);
    /// Ethernet behind the preamble of a passive optical network.
    pub const EPON: Self = Self(259);
    /// Ethernet behind its preamble.
    pub const ETHERNET_MPACKET: Self = Self(274);
    /// Linux cooked capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// libpcap's name, for instance `EN10MB`; `None` if libpcap 1.10 has none.
    pub fn name(self) -> Option<&'static str> {
        let number = self.canonical().0;
        let row = NAMES.binary_search_by_key(&number, |row| row.0).ok()?;
        Some(NAMES[row].1)
    }

    /// The DLT number of libpcap on Linux.
    pub const fn dlt(self) -> u16 {
        match self.canonical().0 {
            100 => 11,
            101 => 12,
            102 => 15,
            103 => 16,
            106 => 19,
            same => same,
        }
    }

    /// The longest packet that libpcap 1.10 accepts for the link, in bytes. A longer one is damage.
    pub const fn maximum_snap_len(self) -> u32 {
        const KIBIBYTE: u32 = 1024;
        match self.0 {
            // D-Bus messages, USB transfers, EBHSCR.
            231 => 128 * KIBIBYTE * KIBIBYTE,
            249 => KIBIBYTE * KIBIBYTE,
            279 => 8 * KIBIBYTE * KIBIBYTE,
            _ => 256 * KIBIBYTE,
        }
    }

    /// Translates DLT numbers, which some programs write in place of LINKTYPE numbers; libpcap and this reader accept
    /// both. 14 is OpenBSD's number for raw IP.
    pub const fn canonical(self) -> Self {
        match self.0 {
            11 => Self(100),
            12 | 14 => Self(101),
            15 => Self(102),
            16 => Self(103),
            19 => Self(106),
            same => Self(same),
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => out.write_str(name),
            None => write!(out, "LINKTYPE_{}", self.0),
        }
    }
}

/// Number and name, sorted by number.
const NAMES: &[(u16, &str)] = &[
    (0, "NULL"),
    (1, "EN10MB"),
    (6, "IEEE802"),
    (7, "ARCNET"),
    (8, "SLIP"),
    (9, "PPP"),
    (10, "FDDI"),
    (50, "PPP_SERIAL"),
    (51, "PPP_ETHER"),
    (99, "SYMANTEC_FIREWALL"),
    (100, "ATM_RFC1483"),
    (101, "RAW"),
    (102, "SLIP_BSDOS"),
    (103, "PPP_BSDOS"),
    (104, "C_HDLC"),
    (105, "IEEE802_11"),
    (106, "ATM_CLIP"),
    (107, "FRELAY"),
    (108, "LOOP"),
    (109, "ENC"),
    (113, "LINUX_SLL"),
    (114, "LTALK"),
    (117, "PFLOG"),
    (119, "PRISM_HEADER"),
    (122, "IP_OVER_FC"),
    (123, "SUNATM"),
    (127, "IEEE802_11_RADIO"),
    (129, "ARCNET_LINUX"),
    (130, "JUNIPER_MLPPP"),
    (131, "JUNIPER_MLFR"),
    (132, "JUNIPER_ES"),
    (133, "JUNIPER_GGSN"),
    (134, "JUNIPER_MFR"),
    (135, "JUNIPER_ATM2"),
    (136, "JUNIPER_SERVICES"),
    (137, "JUNIPER_ATM1"),
    (138, "APPLE_IP_OVER_IEEE1394"),
    (139, "MTP2_WITH_PHDR"),
    (140, "MTP2"),
    (141, "MTP3"),
    (142, "SCCP"),
    (143, "DOCSIS"),
    (144, "LINUX_IRDA"),
    (163, "IEEE802_11_RADIO_AVS"),
    (164, "JUNIPER_MONITOR"),
    (165, "BACNET_MS_TP"),
    (166, "PPP_PPPD"),
    (167, "JUNIPER_PPPOE"),
    (168, "JUNIPER_PPPOE_ATM"),
    (169, "GPRS_LLC"),
    (170, "GPF_T"),
    (171, "GPF_F"),
    (174, "JUNIPER_PIC_PEER"),
    (175, "ERF_ETH"),
    (176, "ERF_POS"),
    (177, "LINUX_LAPD"),
    (178, "JUNIPER_ETHER"),
    (179, "JUNIPER_PPP"),
    (180, "JUNIPER_FRELAY"),
    (181, "JUNIPER_CHDLC"),
    (182, "MFR"),
    (183, "JUNIPER_VP"),
    (184, "A429"),
    (185, "A653_ICM"),
    (186, "USB_FREEBSD"),
    (187, "BLUETOOTH_HCI_H4"),
    (188, "IEEE802_16_MAC_CPS"),
    (189, "USB_LINUX"),
    (190, "CAN20B"),
    (191, "IEEE802_15_4_LINUX"),
    (192, "PPI"),
    (193, "IEEE802_16_MAC_CPS_RADIO"),
    (194, "JUNIPER_ISM"),
    (195, "IEEE802_15_4"),
    (196, "SITA"),
    (197, "ERF"),
    (198, "RAIF1"),
    (199, "IPMB_KONTRON"),
    (200, "JUNIPER_ST"),
    (201, "BLUETOOTH_HCI_H4_WITH_PHDR"),
    (202, "AX25_KISS"),
    (209, "IPMB_LINUX"),
    (215, "IEEE802_15_4_NONASK_PHY"),
    (216, "LINUX_EVDEV"),
    (219, "MPLS"),
    (220, "USB_LINUX_MMAPPED"),
    (221, "DECT"),
    (222, "AOS"),
    (223, "WIHART"),
    (224, "FC_2"),
    (225, "FC_2_WITH_FRAME_DELIMS"),
    (226, "IPNET"),
    (227, "CAN_SOCKETCAN"),
    (228, "IPV4"),
    (229, "IPV6"),
    (230, "IEEE802_15_4_NOFCS"),
    (231, "DBUS"),
    (232, "JUNIPER_VS"),
    (233, "JUNIPER_SRX_E2E"),
    (234, "JUNIPER_FIBRECHANNEL"),
    (235, "DVB_CI"),
    (236, "MUX27010"),
    (237, "STANAG_5066_D_PDU"),
    (238, "JUNIPER_ATM_CEMIC"),
    (239, "NFLOG"),
    (240, "NETANALYZER"),
    (241, "NETANALYZER_TRANSPARENT"),
    (242, "IPOIB"),
    (243, "MPEG_2_TS"),
    (244, "NG40"),
    (245, "NFC_LLCP"),
    (246, "PFSYNC"),
    (247, "INFINIBAND"),
    (248, "SCTP"),
    (249, "USBPCAP"),
    (250, "RTAC_SERIAL"),
    (251, "BLUETOOTH_LE_LL"),
    (253, "NETLINK"),
    (254, "BLUETOOTH_LINUX_MONITOR"),
    (255, "BLUETOOTH_BREDR_BB"),
    (256, "BLUETOOTH_LE_LL_WITH_PHDR"),
    (257, "PROFIBUS_DL"),
    (258, "PKTAP"),
    (259, "EPON"),
    (260, "IPMI_HPM_2"),
    (261, "ZWAVE_R1_R2"),
    (262, "ZWAVE_R3"),
    (263, "WATTSTOPPER_DLM"),
    (264, "ISO_14443"),
    (265, "RDS"),
    (266, "USB_DARWIN"),
    (267, "OPENFLOW"),
    (268, "SDLC"),
    (269, "TI_LLN_SNIFFER"),
    (271, "VSOCK"),
    (272, "NORDIC_BLE"),
    (273, "DOCSIS31_XRA31"),
    (274, "ETHERNET_MPACKET"),
    (275, "DISPLAYPORT_AUX"),
    (276, "LINUX_SLL2"),
    (278, "OPENVIZSLA"),
    (279, "EBHSCR"),
    (280, "VPP_DISPATCH"),
    (281, "DSA_TAG_BRCM"),
    (282, "DSA_TAG_BRCM_PREPEND"),
    (283, "IEEE802_15_4_TAP"),
    (284, "DSA_TAG_DSA"),
    (285, "DSA_TAG_EDSA"),
    (286, "ELEE"),
    (287, "Z_WAVE_SERIAL"),
    (288, "USB_2_0"),
    (289, "ATSC_ALP"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |number: u16, name: &str, dlt: u16| {
            assert_eq!(LinkType(number).to_string(), name);
            assert_eq!(LinkType(number).dlt(), dlt);
        };
        check(0, "NULL", 0);
        check(1, "EN10MB", 1);
        check(9, "PPP", 9);
        check(12, "RAW", 12);
        check(14, "RAW", 12);
        check(101, "RAW", 12);
        check(100, "ATM_RFC1483", 11);
        check(113, "LINUX_SLL", 113);
        check(228, "IPV4", 228);
        check(276, "LINUX_SLL2", 276);
        assert_eq!(LinkType(999).to_string(), "LINKTYPE_999");
    }

    #[test]
    fn names_are_sorted_for_the_search() {
        assert!(NAMES.is_sorted_by(|one, next| one.0 < next.0));
    }
}
