//! forged
