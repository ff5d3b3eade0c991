//! Hash tables that are cheap to look up.

use std::collections::HashMap;

/// A table whose keys no client can add: names from the configuration or the directory, and hashes. A client that could
/// add keys could choose them so that all have one hash, which needs the keyed hash of [`HashMap`]'s default.
pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
