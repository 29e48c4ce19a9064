//! Who asks: on behalf of which tenant, and as which subject of a token. (queen-http.md 27, 28)

use compact_str::CompactString;
use hyper::HeaderMap;
use hyper::header::HeaderName;
use tidegate_core::name::TenantId;
use uuid::Uuid;

use crate::error::Failure;

/// Names the tenant, where the broker has several.
pub(crate) const TENANT: HeaderName = HeaderName::from_static("x-queen-tenant");

/// Whoever a request comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// Whose queues it is about.
    pub(crate) tenant: TenantId,
    /// The subject of its verified token, which is noted on each message that it pushes.
    pub(crate) subject: Option<CompactString>,
}

/// The tenant that a request names; the default one without a name.
pub(crate) fn tenant(headers: &HeaderMap) -> Result<TenantId, Failure> {
    let named = headers.get_all(TENANT).iter().collect::<Vec<_>>();
    let id = match named.as_slice() {
        [] => return Ok(TenantId::DEFAULT),
        [one] if one.is_empty() => return Ok(TenantId::DEFAULT),
        [one] => one.to_str().ok().and_then(hyphenated),
        // Which of them is meant must not depend on who reads them.
        [_, _, ..] => None,
    };
    id.map(TenantId).ok_or_else(|| Failure::bad_request("invalid x-queen-tenant header (must be a UUID)"))
}

/// The UUID of a text of the form 8-4-4-4-12, and of no other.
fn hyphenated(text: &str) -> Option<Uuid> {
    let groups = text.split('-').map(str::len);
    if groups.eq([8, 4, 4, 4, 12]) { Uuid::try_parse(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&'static str]) -> Result<TenantId, String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TENANT, value.parse().expect("a header's value"));
        }
        tenant(&headers).map_err(|failure| failure.text())
    }

    #[test]
    fn a_tenant_is_a_hyphenated_uuid_in_any_case() {
        assert_eq!(of(&[]), Ok(TenantId::DEFAULT));
        assert_eq!(of(&[""]), Ok(TenantId::DEFAULT));
        let id = Ok(TenantId(Uuid::from_u128(0x0a0b_0c0d_0000_4000_8000_0000_0000_00ff)));
        assert_eq!(of(&["0a0b0c0d-0000-4000-8000-0000000000ff"]), id);
        assert_eq!(of(&["0A0B0C0D-0000-4000-8000-0000000000FF"]), id);
        for wrong in [
            "x",
            "0a0b0c0d00004000800000000000 0ff",
            "0a0b0c0d0000400080000000000000ff",
            "{0a0b0c0d-0000-4000-8000-0000000000ff}",
            "urn:uuid:0a0b0c0d-0000-4000-8000-0000000000ff",
            "0a0b0c0d-0000-4000-8000-0000000000fg",
            "0a0b0c0d-0000-4000-80000-000000000ff",
        ] {
            let error = of(&[wrong]);
            assert_eq!(error, Err("invalid x-queen-tenant header (must be a UUID)".into()), "{wrong}");
        }
        assert!(of(&["0a0b0c0d-0000-4000-8000-0000000000ff", "0a0b0c0d-0000-4000-8000-0000000000fe"]).is_err());
    }
}
