//! Filters of protocols that had tests before they were made of conversations.

mod ftp;
mod sip;
mod ssh;
