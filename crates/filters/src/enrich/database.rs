//! A file in MaxMind's format: what is said of an address. The file is input: a damaged part of it has no answer.

use filter::ParamError;
use maxminddb::{PathElement, Reader};
use std::net::IpAddr;

/// The longest file that is read.
const FILE_MAX: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct Database(Reader<Vec<u8>>);

impl Database {
    /// Reads the file that the parameter `key` names.
    pub(super) fn open(path: &str, key: &'static str) -> Result<Database, ParamError> {
        let unread = |error: std::io::Error| ParamError::system(format!("cannot read {path}: {error}"));
        let length = std::fs::metadata(path).map_err(unread)?.len();
        if length > FILE_MAX {
            return Err(ParamError::new(key, format!("{path} has {length} bytes, and {FILE_MAX} are the most")));
        }
        let bytes = std::fs::read(path).map_err(unread)?;
        Database::read(bytes)
            .map_err(|error| ParamError::new(key, format!("{path} is no database in MaxMind's format: {error}")))
    }

    /// Reads the bytes of a file.
    pub(super) fn read(bytes: Vec<u8>) -> Result<Database, maxminddb::MaxMindDbError> {
        Reader::from_source(bytes).map(Database)
    }

    /// The text behind these keys. Error: the file is damaged there.
    pub(super) fn text(&self, address: IpAddr, keys: &[&str]) -> Result<Option<&str>, ()> {
        self.find(address, keys)
    }

    /// The same for a number of 32 bits.
    pub(super) fn number(&self, address: IpAddr, keys: &[&str]) -> Result<Option<u64>, ()> {
        Ok(self.find::<u32>(address, keys)?.map(u64::from))
    }

    fn find<'de, T: serde::Deserialize<'de>>(&'de self, address: IpAddr, keys: &[&str]) -> Result<Option<T>, ()> {
        let path: Vec<_> = keys.iter().map(|key| PathElement::Key(key)).collect();
        match self.0.lookup(address) {
            Ok(found) => found.decode_path(&path).map_err(drop),
            // A database of IPv4 has nothing for IPv6.
            Err(maxminddb::MaxMindDbError::InvalidInput { .. }) => Ok(None),
            Err(_) => Err(()),
        }
    }
}
