//! Name of this gateway process. It tells several gateways on one database apart.

use std::sync::LazyLock;

/// Returns the name of the gateway that serves clients on this port, as `HOST:PORT`.
pub fn gateway_name(port: u16) -> String {
    static HOST: LazyLock<String> = LazyLock::new(|| {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = name.trim();
        if name.is_empty() { "gateway".to_owned() } else { name.to_owned() }
    });
    format!("{}:{port}", *HOST)
}
