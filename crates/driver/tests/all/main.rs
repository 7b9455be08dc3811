//! Devices: the contract that all keep (`conformance`), and the abilities of each sort beyond it.

mod af_packet;
mod af_xdp;
mod conformance;
mod devices;
mod tuntap;
