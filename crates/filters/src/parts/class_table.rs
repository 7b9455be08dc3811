//! States by class, found by index: stream numbers are small, so a lookup needs no hash.
//!
//! For sinks that must keep a state until its stream or message really ends. Unlike the engine's sessions, an entry never
//! ends because its stream is silent. The filter that made the class bounds the number of entries.

use base::id::Class;
use base::limits::STREAMS;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct ClassTable<T> {
    /// Place in `entries` by class. Grows with the highest class met.
    places: Vec<u32>,
    entries: Vec<Option<(Class, T)>>,
    free: Vec<u32>,
}

impl<T> Default for ClassTable<T> {
    fn default() -> Self {
        ClassTable { places: Vec::new(), entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> ClassTable<T> {
    /// Whether this can be the class of a stream. No other class has an entry.
    #[inline]
    pub(crate) fn is_stream(class: Class) -> bool {
        (class.connection() as usize) < STREAMS
    }

    fn place(&self, class: Class) -> Option<usize> {
        self.places.get(class.0 as usize).filter(|place| **place != NONE).map(|place| *place as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, class: Class) -> Option<&mut T> {
        let place = self.place(class)?;
        self.entries[place].as_mut().map(|(_, state)| state)
    }

    /// The state of this class. Makes it if there is none. `None`: the class is not a stream.
    #[inline]
    pub(crate) fn get_or_insert(&mut self, class: Class, make: impl FnOnce() -> T) -> Option<&mut T> {
        if self.place(class).is_none() {
            self.insert(class, make)?;
        }
        self.get_mut(class)
    }

    fn insert(&mut self, class: Class, make: impl FnOnce() -> T) -> Option<()> {
        if !Self::is_stream(class) {
            return None;
        }
        let number = class.0 as usize;
        if self.places.len() <= number {
            self.places.resize((number + 1).next_power_of_two(), NONE);
        }
        let entry = Some((class, make()));
        self.places[number] = match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        Some(())
    }

    /// Removes and returns the state of this class.
    #[inline]
    pub(crate) fn remove(&mut self, class: Class) -> Option<T> {
        let place = self.place(class)?;
        self.places[class.0 as usize] = NONE;
        self.free.push(place as u32);
        self.entries[place].take().map(|(_, state)| state)
    }

    /// Removes any state, to empty the table one by one.
    pub(crate) fn pop(&mut self) -> Option<(Class, T)> {
        while let Some(last) = self.entries.pop() {
            if let Some((class, state)) = last {
                self.places[class.0 as usize] = NONE;
                return Some((class, state));
            }
        }
        self.free.clear();
        None
    }

    /// All states.
    pub(crate) fn states_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten().map(|(_, state)| state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_and_go() {
        let mut table = ClassTable::default();
        for class in [5, 0, 9] {
            table.get_or_insert(Class(class), || class).unwrap();
        }
        assert_eq!(table.get_or_insert(Class(5), || 0), Some(&mut 5));
        assert_eq!((table.remove(Class(0)), table.remove(Class(0))), (Some(0), None));
        table.get_or_insert(Class(7), || 7).unwrap();
        assert!(table.get_or_insert(Class(u32::MAX), || 1).is_none(), "no stream has that class");
        assert_eq!(table.pop(), Some((Class(9), 9)));
        assert_eq!(table.get_mut(Class(9)), None);
        assert_eq!(table.remove(Class(7)), Some(7));
        assert_eq!(table.pop(), Some((Class(5), 5)));
        assert_eq!(table.pop(), None);
        table.get_or_insert(Class(3), || 3).unwrap();
        assert_eq!(table.pop(), Some((Class(3), 3)));
    }
}
