//! Pieces that several filters share; none of them is a filter.

pub(crate) mod addresses;
pub(crate) mod class_table;
pub(crate) mod edit;
pub(crate) mod eve;
pub(crate) mod expression;
pub(crate) mod fields;
pub(crate) mod flow_table;
pub(crate) mod frame_line;
#[cfg(test)]
pub(crate) mod handmade;
pub(crate) mod held_folder;
pub(crate) mod json_row;
pub(crate) mod json_text;
pub(crate) mod kept;
pub(crate) mod landing;
pub(crate) mod lines;
pub(crate) mod live;
pub(crate) mod mac;
pub(crate) mod networks;
pub(crate) mod numbers;
pub(crate) mod on_wire;
pub(crate) mod origin;
pub(crate) mod pace;
pub(crate) mod policy;
pub(crate) mod ports;
pub(crate) mod printable;
pub(crate) mod received;
pub(crate) mod room;
pub(crate) mod select;
pub(crate) mod sending;
pub(crate) mod system;
pub(crate) mod target;
pub(crate) mod transport;
pub(crate) mod version;
