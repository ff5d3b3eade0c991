//! Headers that go with every file of the pages.

/// Policy of the pages. Scripts, styles, images and connections may only come from the gateway's
/// own origin. Frames, inline scripts and inline styles are forbidden. HTML text must go through
/// lit-html's policy of trusted types.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types lit-html";

/// Caching of the pages: a browser stores them, and asks each time whether its copy is current
/// (`if-none-match`).
pub const CACHE_CONTROL: &str = "no-cache";

/// Headers of every file of the pages, with [`CONTENT_SECURITY_POLICY`].
pub const SECURITY_HEADERS: [(&str, &str); 5] = [
    ("content-security-policy", CONTENT_SECURITY_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];
