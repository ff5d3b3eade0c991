/** Which of the two pages this is: the operators' or a tenant's. @type {'admin' | 'me'} */
export const audience = location.pathname.replace(/\/$/, '').endsWith('/me') ? 'me' : 'admin';
