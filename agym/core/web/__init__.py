"""One web server for everything that agym serves: uvicorn's protocols, with agym's limits."""
