"""Client libraries behind one interface; roles know nothing of them."""
