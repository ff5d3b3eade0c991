//! Headers that go with every file of the pages.

/// Policy of the pages: scripts, styles, images and connections of our own origin alone, no frame, no inline script or
/// style, and HTML text through lit-html's policy of trusted types alone.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types lit-html";

/// Caching of the pages: a browser keeps them, and asks each time whether its copy is current (`if-none-match`).
pub const CACHE_CONTROL: &str = "no-cache";

/// Headers of every file of the pages, with [`CONTENT_SECURITY_POLICY`].
pub const SECURITY_HEADERS: [(&str, &str); 5] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];
